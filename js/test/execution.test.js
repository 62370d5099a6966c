import { describe, expect, test } from "vitest";
import { execution } from "../dev/twin_scenes.js";
import { isLiving } from "../src/connection.js";
import { generated, open, paint, play } from "./helpers.js";

/** @typedef {import("../src/wire.js").Status} Status */

/** @param {string | null | undefined} text */
const plain = (text) =>
  text
    ?.replace(/\u202f/g, " ")
    .replace(/\s+/g, " ")
    .trim();

/**
 * @param {Partial<Status>} change
 * @param {boolean} [over]
 */
async function standing(change, over = false) {
  const opened = await open();
  const fake = play(opened, generated(["a"]));
  opened.model.receive(over ? fake.end({ state: "finished", ...change }) : fake.beat({ tracks: [1] }, change));
  paint();
  const lines = () => opened.all(".gs-execution p").map((line) => plain(line.textContent));
  return { ...opened, fake, lines };
}

describe("what a run's execution did", () => {
  test("in a line: passes, those compared, what preparing took", async () => {
    const { lines } = await standing({ execution: execution() }, true);
    expect(lines()).toEqual([
      "traced: 27 passes, 3 compared with eager (largest difference 0), prepared in 1.20 s, 2 graphs",
    ]);
  });

  test("passes that ran eagerly are told with their reasons, and recompilations", async () => {
    const fallbacks = [
      { reason: "attentions are asked for", passes: 2 },
      { reason: "<b>", passes: 1 },
    ];
    const { lines, all } = await standing({ execution: execution({ fallbacks, recompilations: 3 }) }, true);
    expect(lines().slice(1)).toEqual([
      "2 passes ran eagerly: attentions are asked for",
      "1 pass ran eagerly: <b>",
      "recompiled 3 times",
    ]);
    expect(all(".gs-execution b")).toHaveLength(1);
  });

  test.each(
    /** @type {[Partial<import("../src/wire.js").WireExecution>, boolean, string][]} */ ([
      [{ compared: 0, largest_difference: null }, true, "traced: 27 passes, prepared in 1.20 s, 2 graphs"],
      [{ largest_difference: null }, true, "traced: 27 passes, 3 compared with eager, prepared in 1.20 s, 2 graphs"],
      [{ compared: 0, prepared: 0, graphs: 0 }, true, "traced: 27 passes, nothing was to be prepared"],
      [{ compared: 0, prepared: 0, graphs: 0 }, false, "traced: 27 passes"],
      [{ passes: 0, compared: 0, prepared: 0, graphs: 0 }, false, "traced: no pass yet"],
      [{ passes: 0, compared: 0, prepared: 0.3, graphs: 0 }, true, "traced: no pass, prepared in 300 ms, no new graph"],
      [{ compared: 0, graphs: 0, passes: 1 }, true, "traced: 1 pass, prepared in 1.20 s, no new graph"],
      [
        { largest_difference: 2.3e-5 },
        true,
        "traced: 27 passes, 3 compared with eager (largest difference 2.3e-5), prepared in 1.20 s, 2 graphs",
      ],
    ]),
  )("what is unknown or still to come is left out: %j, over %j", async (change, over, line) => {
    const { lines } = await standing({ execution: execution(change) }, over);
    expect(lines()).toEqual([line]);
  });

  test("where none was asked for, nothing is drawn", async () => {
    const { all } = await standing({ execution: null }, true);
    expect(all(".gs-execution")).toEqual([]);
  });
});

describe("preparing", () => {
  const preparing = { what: "one token on a cache", stage: "tracing", seconds: 3.07 };
  /** @type {Partial<Status>} */
  const change = { state: "preparing", execution: execution({ preparing }), tokens_per_second: null };

  test("is a phase of its own: what, which stage, and how long as it was told", async () => {
    const { find, model, fake } = await standing(change);
    expect(find(".gs-status [role=status]").textContent).toBe("preparing: one token on a cache, tracing");
    expect(plain(find(".gs-seconds").textContent)).toBe("3.07 s");
    expect(find(".gs-status").dataset.state).toBe("preparing");
    const later = execution({ preparing: { ...preparing, stage: "", seconds: 4.1 } });
    model.receive(fake.beat({ tracks: [1] }, { ...change, execution: later }));
    paint();
    expect(find(".gs-status [role=status]").textContent).toBe("preparing: one token on a cache");
    expect(plain(find(".gs-seconds").textContent)).toBe("4.10 s");
  });

  test("of a run that is paused is not told as going on", async () => {
    const { all, find } = await standing({ ...change, state: "paused" });
    expect(find(".gs-status [role=status]").textContent).toBe("paused");
    expect(all(".gs-seconds")).toEqual([]);
  });

  test("can be cancelled by Stop", async () => {
    const { find, model } = await standing(change);
    const stop = find("[data-command=stop]");
    expect(stop.title).toBe("Cancel preparing, and end the run");
    expect(stop.hasAttribute("disabled")).toBe(false);
    stop.click();
    paint();
    expect(model.sent.at(-1)).toEqual({ kind: "stop", run: "r1" });
    expect(find(".gs-status [role=status]").textContent).toBe("stopping…");
  });

  test("lives, and ends with the phase", async () => {
    expect(isLiving("preparing")).toBe(true);
    const { all, find, model, fake } = await standing(change);
    model.receive(fake.beat({ tracks: [1] }, { state: "decoding", execution: execution() }));
    paint();
    expect(all(".gs-seconds")).toEqual([]);
    expect(find(".gs-status [role=status]").textContent).toBe("decoding");
    expect(find("[data-command=stop]").title).toBe("End the run; what came is kept");
  });
});

describe("the choice in the form", () => {
  test("each option has its line, whatever the field", async () => {
    const { find, all, model } = await open();
    const field = find("[data-field=execution]");
    const select = /** @type {HTMLSelectElement} */ (field.querySelector("select"));
    expect([...select.options].map((option) => option.value).slice(0, 2)).toEqual(["eager", "traced"]);
    expect(find(".gs-choice").textContent).toBe("The model's own code. Nothing to prepare.");
    expect(all(".gs-choice")).toHaveLength(1);
    const described = select.getAttribute("aria-describedby")?.split(" ") ?? [];
    expect(described).toHaveLength(2);
    expect(described).toContain(find(".gs-choice").id);
    expect(select.options[1].title).toContain("Recorded once as a graph");
    select.value = "traced";
    select.dispatchEvent(new Event("change", { bubbles: true }));
    paint();
    expect(find(".gs-choice").textContent).toContain("Recorded once as a graph");
    expect(find("details[data-group=execution] summary small").textContent).toBe("execution: traced");
    expect(model.get("settings").execution).toBeUndefined();
  });

  test("is in a group that can be opened", async () => {
    const { find } = await open();
    const group = find("details[data-group=execution]");
    expect(plain(group.querySelector("summary")?.textContent)).toBe("execution");
    expect(group.closest("[disabled], [inert]")).toBeNull();
  });
});
