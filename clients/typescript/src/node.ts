/** A journal in a file: rows that wait for the server outlive the process, also one that was killed. */

import { closeSync, existsSync, fsyncSync, ftruncateSync, openSync, readFileSync, renameSync, rmSync, writeFileSync, writeSync } from "node:fs";

import type { Journal, Row } from "./index.js";

/**
 * Return a journal for one process. Each row is a line of JSON, and so is each note of how many were done; a line that a
 * crash left unfinished does not count. A power cut may lose what came since the last note.
 */
export function fileJournal(path: string): Journal {
  const lock = `${path}.lock`;
  let file: number | undefined;
  let waiting = 0;

  const append = (line: unknown): void => {
    if (file === undefined) throw new Error("the journal is not open");
    writeSync(file, JSON.stringify(line) + "\n");
  };

  return {
    async load() {
      claim(lock);
      const rows: Row[] = [];
      for (const line of existsSync(path) ? readFileSync(path, "utf8").split("\n").slice(0, -1) : []) {
        const entry = parsed(line);
        if (typeof entry === "number") rows.splice(0, entry);
        else if (entry !== undefined) rows.push(entry);
      }
      writeFileSync(`${path}.new`, rows.map((row) => JSON.stringify(row) + "\n").join(""), { flush: true });
      renameSync(`${path}.new`, path);
      file = openSync(path, "a");
      waiting = rows.length;
      return rows;
    },

    async add(row) {
      append(row);
      waiting += 1;
    },

    async done(count) {
      waiting -= count;
      if (waiting > 0) append(count);
      else if (file !== undefined) ftruncateSync(file, 0);
      if (file !== undefined) fsyncSync(file);
    },

    async close() {
      if (file === undefined) return;
      closeSync(file);
      file = undefined;
      rmSync(lock, { force: true });
    },
  };
}

function parsed(line: string): Row | number | undefined {
  try {
    return JSON.parse(line) as Row | number;
  } catch {
    return undefined; // damaged
  }
}

/** Take the lock, or say which process has it; that of a process that is gone counts for nothing. */
function claim(lock: string): void {
  for (;;) {
    try {
      writeFileSync(lock, String(process.pid), { flag: "wx" });
      return;
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== "EEXIST") throw error;
    }
    const owner = Number(readFileSync(lock, "utf8"));
    if (owner && owner !== process.pid && alive(owner)) {
      throw new Error(`process ${owner} has ${lock}: each process needs a journal of its own.`);
    }
    rmSync(lock, { force: true });
  }
}

function alive(process_: number): boolean {
  try {
    process.kill(process_, 0);
    return true;
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === "EPERM";
  }
}
