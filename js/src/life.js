// Watches the host's connection to the kernel for its end, where the host shows one (JupyterLab, Notebook 7). Widgets
// themselves hear of a restart only: not of a shutdown, and not of a closed notebook, whose models stay undisposed.

/** States from which a kernel does not come back to its widgets. */
const ENDS = new Set(["dead", "terminating"]);

/**
 * The parts of @jupyterlab/services' IKernelConnection and of Lumino's signals that are used.
 * @typedef {{ connect?: (slot: Function) => unknown, disconnect?: (slot: Function) => unknown }} Signal
 * @typedef {{ statusChanged?: Signal, disposed?: Signal, isDisposed?: boolean }} Kernel
 */

/**
 * @param {unknown} manager `model.widget_manager`, of whatever host.
 * @param {() => void} onEnd May be called more than once.
 * @param {AbortSignal} signal
 */
export function watchKernel(manager, onEnd, signal) {
  const kernel = /** @type {{ kernel?: Kernel | null } | undefined} */ (manager)?.kernel;
  const onStatus = (/** @type {unknown} */ _, /** @type {unknown} */ status) => {
    if (typeof status === "string" && ENDS.has(status)) {
      onEnd();
    }
  };
  /** @type {[Signal | undefined, Function][]} */
  const slots = [
    [kernel?.statusChanged, onStatus],
    [kernel?.disposed, onEnd],
  ];
  for (const [source, slot] of slots) {
    source?.connect?.(slot);
    signal.addEventListener("abort", () => source?.disconnect?.(slot));
  }
  if (kernel?.isDisposed) {
    onEnd();
  }
}
