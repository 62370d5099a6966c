import { beforeEach, describe, expect, test, vi } from "vitest";
import { FakeRun } from "../dev/fake_kernel.js";
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

describe("stop on the control comm", () => {
  function kernel() {
    const comm = {
      opened: /** @type {any[]} */ ([]),
      sent: /** @type {any[]} */ ([]),
      closed: 0,
      isDisposed: false,
      commsOverSubshells: "perCommTarget",
      subshellStarted: Promise.resolve(),
      open: (/** @type {any} */ data) => comm.opened.push(data),
      send: (/** @type {any} */ data) => comm.sent.push(data),
      close: () => {
        comm.closed += 1;
      },
      onClose: /** @type {(() => void) | undefined} */ (undefined),
    };
    const createComm = vi.fn(() => comm);
    return { comm, kernel: { createComm, info: Promise.resolve(), supportsSubshells: true } };
  }

  /**
   * @param {any} fakeKernel
   * @param {Record<string, any>} traits
   */
  function withKernel(fakeKernel, traits = { widget_id: "w1" }) {
    const model = fakeModel(traits);
    model.widget_manager = { kernel: fakeKernel };
    return connect(traits, model);
  }

  test("is opened with the widget's id once its subshell is there, and stops on both ways", async () => {
    const { comm, kernel: fake } = kernel();
    let started = () => {};
    comm.subshellStarted = new Promise((resolve) => {
      started = resolve;
    });
    const { connection, model } = withKernel(fake);
    await vi.advanceTimersByTimeAsync(100);
    expect(comm.opened).toEqual([]);
    started();
    expect(await connection.controlled).toBe(true);
    expect(fake.createComm).toHaveBeenCalledWith("genscope.control");
    expect(comm.opened).toEqual([{ model_id: "w1" }]);
    model.receive(run.begin(0));
    connection.stop();
    expect(comm.sent).toEqual([{ kind: "stop", run: "r1" }]);
    expect(model.sent.at(-1)).toEqual({ kind: "stop", run: "r1" });
  });

  test("does not wait for a subshell that the kernel cannot have", async () => {
    const { comm, kernel: fake } = kernel();
    comm.subshellStarted = new Promise(() => {});
    const { connection } = withKernel({ ...fake, supportsSubshells: false });
    expect(await connection.controlled).toBe(true);
    expect(comm.opened).toHaveLength(1);
  });

  test("learns the id from the host's model where Python does not say it", async () => {
    const { comm, kernel: fake } = kernel();
    const { model, connection } = withKernel(fake, {});
    model.emit("change", { model_id: "m7", comm_live: true });
    await connection.controlled;
    expect(comm.opened).toEqual([{ model_id: "m7" }]);
  });

  test("is closed with the model, and given up when the kernel closes it", async () => {
    const { comm, kernel: fake } = kernel();
    const { connection, life } = withKernel(fake);
    await connection.controlled;
    comm.onClose?.();
    connection.stop();
    expect(comm.sent).toEqual([]);
    life.abort();
    expect(comm.closed).toBe(1);
  });

  test("is missed by nobody where hosts have no kernel connection", async () => {
    const { connection, model } = withKernel(undefined);
    expect(await connection.controlled).toBe(false);
    connection.stop();
    expect(model.sent.at(-1)).toEqual({ kind: "stop" });
  });
});
