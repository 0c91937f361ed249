// Work that is asked for often and done now and then.

/** @type {Set<() => void>} */
const all = new Set();
let paused = false;

/**
 * Return a function that asks for `work`: it starts at once, or after a rest of `ms` since it last ended, and longer where
 * it took long, so that a page never takes more than a tenth of the server's time. Never twice at a time, and not while
 * nobody looks at the page.
 * @param {number} ms
 * @param {() => Promise<void> | void} work
 */
export function paced(ms, work) {
  let asked = false;
  let busy = false;
  let rested = true;

  async function run() {
    if (!asked || busy || !rested || paused || document.hidden) return;
    [asked, busy, rested] = [false, true, false];
    const start = performance.now();
    try {
      await work();
    } finally {
      busy = false;
      const rest = Math.max(ms, 9 * (performance.now() - start));
      setTimeout(() => {
        rested = true;
        run();
      }, rest);
    }
  }

  all.add(run);
  document.addEventListener("visibilitychange", run);
  return () => {
    asked = true;
    run();
  };
}

/** Let the page stand still, for those who read it; or move again. @param {boolean} still */
export function hold(still) {
  paused = still;
  for (const run of all) run();
}
