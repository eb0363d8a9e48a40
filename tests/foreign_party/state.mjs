// What a party keeps on disk: its ledger, its attempts, and what it saw of others. Every write is on disk before it counts.
import fs from 'node:fs';
import net from 'node:net';
import path from 'node:path';
import { need, sha256 } from './messages.mjs';

function syncDirectory(directory) {
  const handle = fs.openSync(directory, 'r');
  fs.fsyncSync(handle);
  fs.closeSync(handle);
}

/** Replaces a file whole. */
export function store(file, content) {
  const handle = fs.openSync(`${file}.new`, 'w', 0o600);
  fs.writeFileSync(handle, content);
  fs.fsyncSync(handle);
  fs.closeSync(handle);
  fs.renameSync(`${file}.new`, file);
  syncDirectory(path.dirname(file));
}

/** Takes the state directory for this process alone; the kernel gives it back when the process ends. */
export function lock(directory) {
  return new Promise((resolve, reject) => {
    const name = `\0radofed-foreign-${sha256(fs.realpathSync(directory)).toString('hex')}`;
    const server = net.createServer().listen(name, () => resolve(server.unref()));
    server.on('error', () => reject(new Error(`another process uses ${directory}`)));
  });
}

/** Lines of JSON that are only ever added. A last line that a crash cut short never counted. */
export class Lines {
  constructor(file) {
    this.file = file;
    const text = fs.existsSync(file) ? fs.readFileSync(file, 'utf8') : '';
    const whole = text.slice(0, text.lastIndexOf('\n') + 1);
    if (whole.length !== text.length) fs.truncateSync(file, Buffer.byteLength(whole));
    this.lines = whole.split('\n').slice(0, -1);
    this.handle = fs.openSync(file, 'a', 0o600);
    syncDirectory(path.dirname(file));
  }

  add(entry) {
    const line = JSON.stringify(entry);
    try {
      const bytes = Buffer.from(`${line}\n`);
      need(fs.writeSync(this.handle, bytes) === bytes.length, 'INTERNAL', 'the disk took a part');
      fs.fsyncSync(this.handle);
    } catch (error) { // what the disk has is not known: the next start reads it
      process.stderr.write(`${this.file} cannot be written: ${error.message}\n`);
      process.exit(1);
    }
    this.lines.push(line);
    return line;
  }
}

/**
 * The privacy ledger: a chain of `reserve`, `charge` and `release` entries of attempts, with costs in units of 2^-60. An
 * attempt costs from its reservation on; only a release, which no upload may follow, gives it back.
 */
export class Ledger {
  constructor(file, limit) {
    this.limit = limit;
    this.file = new Lines(file);
    this.digests = [sha256('radofed-foreign/ledger')];
    this.attempts = new Map();
    for (const line of this.file.lines) this.#count(line);
  }

  #count(line) {
    const entry = JSON.parse(line);
    if (entry.after !== this.digests.at(-1).toString('hex')) throw new Error('the ledger is damaged: its chain is broken');
    this.digests.push(sha256(this.digests.at(-1), line));
    const now = this.attempts.get(entry.attempt) ?? { cost: 0n };
    if (entry.kind === 'reserve') now.cost = BigInt(entry.cost);
    if (entry.kind === 'release') now.cost = 0n;
    const reserved = entry.kind === 'reserve' ? this.digests.length - 1 : now.reserved;
    this.attempts.set(entry.attempt, { ...now, ...entry, cost: now.cost, reserved });
  }

  #add(entry) {
    this.#count(this.file.add({ ...entry, after: this.digests.at(-1).toString('hex') }));
  }

  get spent() {
    return [...this.attempts.values()].reduce((sum, each) => sum + each.cost, 0n);
  }

  get head() {
    return { entries: BigInt(this.digests.length - 1), digest: this.digests.at(-1) };
  }

  /** The head right after an attempt's reservation. */
  headOf(attempt) {
    const { reserved } = this.attempts.get(attempt);
    return { entries: BigInt(reserved), digest: this.digests[reserved] };
  }

  /** Whether the chain has this head. */
  has({ entries, digest }) {
    return entries < BigInt(this.digests.length) && this.digests[Number(entries)].equals(digest);
  }

  room(cost) {
    need(this.spent + cost <= this.limit, 'BUDGET_EXCEEDED');
  }

  reserve(attempt, cost) {
    need(!this.attempts.has(attempt), 'ANSWER_CONFLICT', 'reserved before');
    this.room(cost);
    this.#add({ kind: 'reserve', attempt, cost: `${cost}` });
  }

  charge(attempt, cohort, upload) {
    const { kind, ...known } = this.attempts.get(attempt) ?? {};
    if (kind === 'charge') need(known.cohort === cohort && known.upload === upload, 'ANSWER_CONFLICT', 'charged for another cohort');
    else {
      need(kind === 'reserve', 'QUERY_CLOSED', 'not reserved');
      this.#add({ kind: 'charge', attempt, cohort, upload });
    }
  }

  release(attempt) {
    if (this.attempts.get(attempt)?.kind === 'reserve') this.#add({ kind: 'release', attempt });
  }
}
