// The anywidget entry: `initialize` opens the session of a model, `render` puts a view of it on the page.
//
// A function, because anywidget calls it once a model: the closure is what its views share.
import { Session } from "./session.js";
import { mountScope } from "./views/scope.js";

/** @type {() => { initialize: import("@anywidget/types").Initialize, render: import("@anywidget/types").Render }} */
export default () => {
  /** @type {Session | null} */
  let session = null;

  return {
    initialize({ model, signal }) {
      // Hosts before anywidget 0.10 pass no signal and call what is returned.
      const controller = new AbortController();
      signal?.addEventListener("abort", () => controller.abort());
      session = new Session(model, controller.signal);
      return () => controller.abort();
    },
    render({ model, el, signal }) {
      const controller = new AbortController();
      signal?.addEventListener("abort", () => controller.abort());
      session ??= new Session(model, controller.signal);
      mountScope(session, el, controller.signal);
      return () => controller.abort();
    },
  };
};
