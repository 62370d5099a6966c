import { beforeEach, describe, expect, test, vi } from "vitest";
import { counts, FakeRun } from "../dev/fake_kernel.js";
import { Connection } from "../src/connection.js";
import { controller, fakeModel, generated } from "./helpers.js";

const run = new FakeRun("r1", generated(["a", "b", "c", "d", "e", "f"]));

/** @param {Record<string, any>} [traits] */
function connect(traits = { state: "decoding" }, model = fakeModel(traits)) {
  const life = controller();
  const changed = vi.fn();
  const seen = vi.fn();
  const connection = new Connection(/** @type {any} */ (model), { onChange: changed, onSeen: seen }, life.signal);
  const pulls = () => model.sent.filter(({ kind }) => kind === "pull");
  return { model, connection, changed, seen, life, pulls };
}

beforeEach(() => {
  vi.useFakeTimers();
});

describe("pulls", () => {
  test("everything is pulled at the start", () => {
    expect(connect().model.sent).toEqual([{ kind: "pull", start: 0 }]);
  });

  test("with no run there is nothing to ask for again", () => {
    const { pulls } = connect({ state: "idle" });
    vi.advanceTimersByTime(120_000);
    expect(pulls()).toHaveLength(1);
  });

  test("many frames after a gap make one pull, sent again only when its answer is late, ever more slowly", () => {
    const { model, pulls } = connect();
    model.receive(run.begin(0));
    model.receive(run.data(0, 1));
    for (let i = 2; i < 6; i += 1) {
      model.receive(run.data(i, i + 1));
    }
    expect(pulls().slice(1)).toEqual([{ kind: "pull", run: "r1", track: 0, start: 1 }]);
    vi.advanceTimersByTime(2100);
    expect(pulls()).toHaveLength(3);
    vi.advanceTimersByTime(2100);
    expect(pulls()).toHaveLength(3);
    vi.advanceTimersByTime(2000);
    expect(pulls()).toHaveLength(4);
  });

  test("frames of a run not heard of make one pull, too", () => {
    const { model, pulls } = connect();
    for (let i = 0; i < 5; i += 1) {
      model.receive(run.data(i, i + 1));
    }
    expect(pulls()).toHaveLength(1);
  });

  test("slices that arrive keep the next pull back", () => {
    const { model, pulls, connection } = connect();
    model.receive(run.begin(0));
    model.receive(run.beat({ tracks: [6] }));
    expect(pulls()).toHaveLength(2);
    vi.advanceTimersByTime(1500);
    model.receive(run.data(0, 3));
    vi.advanceTimersByTime(1500);
    expect(pulls()).toHaveLength(2);
    model.receive(run.data(3, 6));
    vi.advanceTimersByTime(4500); // longer, and silence would be a reason to ask
    expect(pulls()).toHaveLength(2);
    expect(connection.state.tracks[0].n).toBe(6);
  });

  test("silence of a living run makes a pull from where the record stands", () => {
    const { model, pulls } = connect();
    model.receive(run.begin(0));
    model.receive(run.data(0, 3));
    vi.advanceTimersByTime(5000);
    expect(pulls()).toHaveLength(1);
    vi.advanceTimersByTime(2000);
    expect(pulls().slice(1)).toEqual([{ kind: "pull", run: "r1", track: 0, start: 3 }]);
  });

  test("a run of which only the trait tells makes a pull; one that is known makes none", () => {
    const { model, pulls } = connect({ state: "idle" });
    vi.advanceTimersByTime(60_000);
    model.set("state", "finished");
    vi.advanceTimersByTime(1900);
    expect(pulls()).toHaveLength(1);
    vi.advanceTimersByTime(200);
    expect(pulls().slice(1)).toEqual([{ kind: "pull", start: 0 }]);
    model.receive(run.begin(0));
    model.receive(run.data(0, 6));
    model.receive(run.end({ state: "stopped" }));
    model.set("state", "stopped");
    vi.advanceTimersByTime(60_000);
    expect(pulls()).toHaveLength(2);
  });

  test("a lost slice is asked for from where the record stands", () => {
    const { model, pulls } = connect();
    model.receive(run.begin(0));
    model.receive(run.end({ state: "finished" }));
    model.receive(run.data(0, 3));
    vi.advanceTimersByTime(2100);
    expect(pulls().at(-1)).toEqual({ kind: "pull", run: "r1", track: 0, start: 3 });
  });
});

describe("pulls of several tracks", () => {
  const fake = new FakeRun("r1", [generated(["a", "b", "c"]), generated(["x", "y", "z"])], { lanes: [{}, {}] });

  test("each is asked for once, and again only that which stays away, whatever else comes", () => {
    const { model, pulls } = connect();
    model.receive(fake.begin(0));
    model.receive(fake.beat({ tracks: [2, 2] }));
    model.receive(fake.beat({ tracks: [2, 2] }));
    const both = [0, 1].map((track) => ({ kind: "pull", run: "r1", track, start: 0 }));
    expect(pulls().slice(1)).toEqual(both);
    vi.advanceTimersByTime(1500);
    model.receive(fake.tracks[0].data(0, 2));
    vi.advanceTimersByTime(1900);
    // Rows that nobody waits for: they must not keep the other track waiting.
    model.receive(fake.tracks[0].data(2, 3));
    expect(pulls()).toHaveLength(3);
    vi.advanceTimersByTime(200);
    expect(pulls().slice(3)).toEqual([both[1]]);
  });

  test("everything under way holds the parts back, also after its begin came", () => {
    const { model, pulls } = connect();
    model.receive(fake.begin(0));
    vi.advanceTimersByTime(100);
    model.set("state", "paused");
    vi.advanceTimersByTime(2100);
    expect(pulls().slice(1)).toEqual([{ kind: "pull", start: 0 }]);
    model.receive(fake.beat({ tracks: [2, 2] }));
    model.receive(fake.begin(0));
    model.receive(fake.tracks[0].data(0, 1));
    model.receive(fake.beat({ tracks: [2, 2] }));
    expect(pulls()).toHaveLength(2);
    vi.advanceTimersByTime(2100);
    expect(
      pulls()
        .slice(2)
        .map(({ track, start }) => [track, start]),
    ).toEqual([
      [0, 1],
      [1, 0],
    ]);
  });

  test("a table is asked for by its name", () => {
    const { model, pulls } = connect();
    model.receive(fake.begin(0));
    model.receive(fake.beat({ rounds: 2 }));
    expect(pulls().slice(1)).toEqual([{ kind: "pull", run: "r1", table: "rounds", start: 0 }]);
  });
});

test("what was looked at goes to who asked, and is a sign of life", () => {
  const { model, seen, changed } = connect();
  const message = /** @type {const} */ ({
    kind: "unseen",
    run: "r1",
    lane: 0,
    position: 3,
    what: "lens",
    message: "no",
  });
  model.receive(message);
  expect(seen).toHaveBeenCalledWith(message);
  expect(changed).not.toHaveBeenCalled();
});

describe("life", () => {
  test("a dead kernel is noticed, and nothing is sent to it", () => {
    const { model, connection, changed } = connect();
    const sent = model.sent.length;
    model.emit("comm_live_update");
    expect(connection.alive).toBe(false);
    expect(changed).toHaveBeenLastCalledWith(null);
    connection.stop();
    expect(model.sent).toHaveLength(sent);
  });

  test("the host's model tells whether the comm is back", () => {
    const { model, connection } = connect();
    const host = { model_id: "m1", comm_live: false };
    model.emit("change", host);
    expect(connection.alive).toBe(false);
    host.comm_live = true;
    model.emit("comm_live_update");
    expect(connection.alive).toBe(true);
    expect(model.sent.at(-1)).toEqual({ kind: "pull", start: 0 });
  });

  test("silence of a living run shows after five seconds, and ends with any message", () => {
    const { model, connection, changed } = connect();
    model.receive(run.begin(0));
    vi.advanceTimersByTime(4900);
    expect(connection.silence).toBe(0);
    vi.advanceTimersByTime(2100);
    expect(connection.silence).toBe(7);
    expect(changed).toHaveBeenLastCalledWith(null);
    model.receive(run.beat({ tracks: [0] }));
    expect(connection.silence).toBe(0);
  });

  test("a finished run may be silent", () => {
    const { model, connection } = connect();
    model.receive(run.begin(0));
    model.receive({ ...run.end({ state: "finished" }), counts: counts([0]) });
    vi.advanceTimersByTime(60_000);
    expect(connection.silence).toBe(0);
  });

  test("messages of others on the same comm are left alone", () => {
    const { model, changed } = connect();
    model.emit("msg:custom", { kind: "anywidget-command-response", id: 1 }, []);
    model.emit("msg:custom", null, []);
    expect(changed).not.toHaveBeenCalled();
  });

  test("nothing listens or ticks after the end", () => {
    const { model, life } = connect();
    life.abort();
    expect(model.listening).toBe(0);
    expect(vi.getTimerCount()).toBe(0);
  });
});
