// A second comm, for Stop alone: it arrives while the kernel runs another synchronous cell. No other command, no state.
//
// ipykernel answers a front end's messages on the thread where it last published on that comm; on this comm it never
// publishes, so the messages reach the subshell that JupyterLab starts for the comm's target. Where any of this is
// missing (VS Code, marimo, older kernels) there is no control comm and Stop travels as a widget message only.

const TARGET = "genscope.control";
const SUBSHELL_TIMEOUT_MS = 3000;

/**
 * The part of @jupyterlab/services' IComm that is used.
 * @typedef {object} Comm
 * @property {(data: object) => unknown} open
 * @property {(data: object) => unknown} send
 * @property {() => unknown} close
 * @property {boolean} [isDisposed]
 * @property {Promise<void>} [subshellStarted] Never settles where there are no subshells.
 * @property {string} [commsOverSubshells]
 * @property {((message: unknown) => unknown) | undefined} [onClose]
 */

/**
 * The part of @jupyterlab/services' IKernelConnection that is used.
 * @typedef {object} Kernel
 * @property {(target: string) => Comm} createComm
 * @property {Promise<unknown>} [info]
 * @property {boolean} [supportsSubshells]
 */

/**
 * @param {Comm} comm
 * @param {Kernel} kernel
 */
async function subshell(comm, kernel) {
  await kernel.info;
  if (!kernel.supportsSubshells || comm.commsOverSubshells === "disabled" || !comm.subshellStarted) {
    return;
  }
  const timeout = new Promise((resolve) => setTimeout(resolve, SUBSHELL_TIMEOUT_MS));
  await Promise.race([comm.subshellStarted, timeout]);
}

/**
 * Open the comm in the background; until it is open, and where it cannot be, `stop` does nothing.
 * @param {unknown} manager `model.widget_manager`, of whatever host.
 * @param {string} modelId `widget.model_id` in Python.
 * @param {AbortSignal} signal Closes the comm.
 * @returns {{ stop: (run: string | null) => boolean, opened: Promise<boolean> }} `stop` tells whether it was sent.
 */
export function openControl(manager, modelId, signal) {
  const kernel = /** @type {{ kernel?: Kernel } | undefined} */ (manager)?.kernel;
  if (typeof kernel?.createComm !== "function" || modelId === "") {
    return { stop: () => false, opened: Promise.resolve(false) };
  }
  /** @type {Comm | null} */
  let ready = null;
  const open = async () => {
    const comm = kernel.createComm(TARGET);
    signal.addEventListener("abort", () => close(comm));
    await subshell(comm, kernel);
    if (signal.aborted || comm.isDisposed) {
      return false;
    }
    // The kernel closes it if nothing registered the target there.
    comm.onClose = () => {
      ready = null;
    };
    comm.open({ model_id: modelId });
    ready = comm;
    return true;
  };
  const opened = open().catch((error) => {
    console.debug("genscope: no control comm; Stop travels as a widget message only.", error);
    return false;
  });
  const stop = (/** @type {string | null} */ run) => {
    if (!ready || ready.isDisposed) {
      return false;
    }
    try {
      ready.send(run === null ? { kind: "stop" } : { kind: "stop", run });
    } catch (error) {
      // The kernel connection is gone; the widget's own message finds that out, too.
      console.debug("genscope: Stop could not be sent on the control comm.", error);
      return false;
    }
    return true;
  };
  return { stop, opened };
}

/** @param {Comm} comm */
function close(comm) {
  try {
    if (!comm.isDisposed) {
      comm.close();
    }
  } catch (error) {
    // The kernel connection is gone already, and the comm with it.
    console.debug("genscope: the control comm was gone before it was closed.", error);
  }
}
