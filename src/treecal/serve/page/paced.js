// Work that is asked for often and done now and then.

/**
 * Return a function that asks for `work`: it starts at once, or `ms` after it last ended; never twice at a time, and
 * not while nobody looks at the page.
 * @param {number} ms
 * @param {() => Promise<void> | void} work
 */
export function paced(ms, work) {
  let asked = false;
  let busy = false;
  let rested = true;

  async function run() {
    if (!asked || busy || !rested || document.hidden) return;
    [asked, busy, rested] = [false, true, false];
    try {
      await work();
    } finally {
      busy = false;
      setTimeout(() => {
        rested = true;
        run();
      }, ms);
    }
  }

  document.addEventListener("visibilitychange", run);
  return () => {
    asked = true;
    run();
  };
}
