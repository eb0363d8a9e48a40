// Whether this party's ledger was set back: others show the acceptances that they saw (docs/protocol.md, section 7, step 9).
import crypto from 'node:crypto';
import { Refused, decode, encode, open, sha256, sign } from './messages.mjs';
import { Lines } from './state.mjs';

export const nameOf = (signed) => sha256(signed.signature).subarray(0, 8).toString('hex');
const DAY = 86400;

export class Witnesses {
  constructor(party, directory) {
    this.party = party;
    this.seen = new Lines(`${directory}/seen.jsonl`); // acceptances of others, in cohorts that this party was charged for
    this.own = new Lines(`${directory}/own.jsonl`); // names of this party's own acceptances
    this.names = new Set(this.own.lines.map((line) => JSON.parse(line)));
    this.confirmed = new Map(); // member: Unix seconds of its last answer that counts
    this.shown = new Map(); // member: names of acceptances that it was asked for and showed
    this.asked = []; // when this party asked for a single acceptance
  }

  addOwn(signed) {
    const name = nameOf(signed);
    if (!this.names.has(name)) { this.own.add(name); this.names.add(name); }
  }

  /** Keeps the acceptances of the others of a cohort. */
  addCohort(members) {
    const known = new Set(this.seen.lines.map((line) => JSON.parse(line).signed));
    for (const { acceptance, signed } of members) {
      const bytes = encode('Signed', signed).toString('base64');
      if (acceptance.party !== this.party.name && acceptance.ledger_head && !known.has(bytes)) {
        this.seen.add({ party: acceptance.party, entries: `${acceptance.ledger_head.entries}`, signed: bytes });
      }
    }
  }

  /** The answer to another party's challenge. */
  async answer(signedChallenge) {
    const { federation, signingKey } = this.party;
    const { party: subject } = decode('Challenge', signedChallenge.payload);
    const challenge = open(federation, 'Challenge', 'party', signedChallenge, this.party.member('party', subject).signing_key);
    const age = Date.now() / 1000 - Number(challenge.signed_at_unix_s);
    if (challenge.federation !== federation || challenge.nonce.length !== 32 || Math.abs(age) > 300 + 300) return;
    const all = this.seen.lines.map((line) => JSON.parse(line)).filter((each) => each.party === subject)
      .map((each) => ({ entries: BigInt(each.entries), signed: decode('Signed', Buffer.from(each.signed, 'base64')) }))
      .sort((a, b) => (a.entries > b.entries ? -1 : 1));
    const listed = all.slice(0, 200);
    const wanted = all.find((each) => nameOf(each.signed) === challenge.nonce.subarray(0, 8).toString('hex'));
    const payload = encode('Witness', {
      federation, party: this.party.name, subject, nonce: challenge.nonce, newest: (wanted ?? all[0])?.signed,
      in_cohorts: listed.map((each) => Buffer.from(nameOf(each.signed), 'hex')).sort(Buffer.compare),
      in_cohorts_from: all.length > 200 ? all[200].entries + 1n : 0n,
    });
    await this.party.coordinator.call('SubmitWitness', { witness: sign(federation, 'Witness', 'party', payload, signingKey) });
  }

  /** Asks the other parties for what they saw of this one. With a name, for that acceptance. */
  async ask(name) {
    const { federation, signingKey } = this.party;
    this.nonce = Buffer.concat([Buffer.from(name ?? '', 'hex'), crypto.randomBytes(name ? 24 : 32)]);
    this.askedAt = Date.now() / 1000;
    const payload = encode('Challenge', { federation, party: this.party.name, nonce: this.nonce, signed_at_unix_s: Math.floor(this.askedAt) });
    await this.party.coordinator.call('AskWitnesses', { challenge: sign(federation, 'Challenge', 'party', payload, signingKey) });
  }

  /** Looks at the answers. Throws if one shows that the ledger was set back. */
  async look() {
    const now = Date.now() / 1000;
    const due = this.enough() ? DAY : 3600;
    if (!this.nonce || now - this.askedAt > due) await this.ask();
    const { witnesses, newest } = await this.party.coordinator.call('FetchWitnesses', { nonce: this.nonce });
    if (newest) this.#checkOwn(newest, 'the coordinator');
    let wanted = null;
    for (const signed of witnesses) {
      try {
        wanted = this.#count(signed, now) ?? wanted;
      } catch (error) {
        if (!(error instanceof Refused)) throw error;
        this.party.log('witness refused', { code: error.code });
      }
    }
    this.asked = this.asked.filter((each) => now - each < DAY);
    if (wanted && this.asked.length < 16 && wanted !== this.nonce.subarray(0, 8).toString('hex')) {
      this.asked.push(now);
      await this.ask(wanted);
    }
  }

  // Whether the ledger has the head of what this party signed. What it did not sign says nothing, whoever shows it.
  #checkOwn(signed, who) {
    for (const kind of ['Acceptance', 'Receipt']) {
      try {
        const { ledger_head: head } = open(this.party.federation, kind, 'party', signed, this.party.rawKey);
        if (head && !this.party.ledger.has(head)) throw new Error(`the ledger was set back: ${who} shows a statement at ${head.entries} entries`);
        return true;
      } catch (error) {
        if (!(error instanceof Refused)) throw error;
      }
    }
    return false;
  }

  /** Counts no earlier answer any more, and asks again. */
  async doubt() {
    this.confirmed.clear();
    await this.ask();
  }

  // Counts one answer. Returns the name of an acceptance that this party does not know and has to ask for.
  #count(signed, now) {
    const { federation, name } = this.party;
    const member = this.party.member('party', decode('Witness', signed.payload).party);
    const witness = open(federation, 'Witness', 'party', signed, member.signing_key);
    if (!this.party.accepts(member) || witness.subject !== name || !witness.nonce.equals(this.nonce)) return null;
    if (witness.newest) {
      if (!this.#checkOwn(witness.newest, member.name)) return null;
      const shown = this.shown.get(member.name) ?? new Set();
      this.shown.set(member.name, shown.add(nameOf(witness.newest)));
    }
    const unknown = witness.in_cohorts.map((each) => each.toString('hex'))
      .filter((each) => !this.names.has(each) && !this.shown.get(member.name)?.has(each));
    if (unknown.length) return unknown[0];
    this.confirmed.set(member.name, now);
    return null;
  }

  enough() {
    const accepted = (name) => this.party.roster.members.some((each) => each.role === 1 && each.name === name && this.party.accepts(each));
    const recent = [...this.confirmed].filter(([name, at]) => accepted(name) && Date.now() / 1000 - at < 2 * DAY);
    return recent.length >= this.party.policy.required_witnesses;
  }
}
