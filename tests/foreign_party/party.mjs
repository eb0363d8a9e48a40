// A party: `node party.mjs DIRECTORY` with party.json in it (README.md).
import crypto from 'node:crypto';
import fs from 'node:fs';
import path from 'node:path';
import { setImmediate as breathe } from 'node:timers/promises';
import { Coordinator, pause } from './coordinator.mjs';
import { NUL, Refused, decode, encode, fingerprint, memberOf, need, open, openRoster, rawOf, sha256, sign, u32, verify } from './messages.mjs';
import * as numbers from './numbers.mjs';
import { FEATURES, budgetOf, chargeOf, checkQuery, honestOf, sample, shareOf, sumsOf, topUpOf } from './queries.mjs';
import { columnsDigest, readRows, readSchema, schemaDigest } from './records.mjs';
import { Ledger, lock, store } from './state.mjs';
import { Witnesses } from './witnesses.mjs';

const [ANSWERING, PREPARING, UPLOADING, COMPLETE, FAILED, LOST] = [1, 2, 3, 5, 6, 7];
const [SILENT, ACCEPTED, IN_COHORT, PENDING] = [1, 3, 6, 8];
const POLICY = {
  learners: {}, accepted_members: [], designs: [], epsilon: 0, delta: 1e-5, delta_per_query: 1e-6, smallest_cohort: 3, assumed_colluders: 1,
  required_witnesses: 1, attempts_per_query: 3, predicates_per_query: 10000, lifetime_per_query_s: 604800, purpose_required: false,
};
const CHUNK = 524288;
const GRACE = 300n;
const now = () => BigInt(Math.floor(Date.now() / 1000));
const maskKeyOf = ({ maskKey }) => crypto.createPrivateKey({ key: Buffer.from(maskKey, 'base64'), format: 'der', type: 'pkcs8' });
const plain = (text) => text.replaceAll(':', '').toLowerCase();

export class Party {
  constructor(directory) {
    this.path = (name) => path.resolve(directory, name);
    const config = JSON.parse(fs.readFileSync(this.path('party.json'), 'utf8'));
    this.config = config;
    Object.assign(this, { federation: config.federation, name: config.name, policy: { ...POLICY, ...config.policy } });
    this.signingKey = crypto.createPrivateKey(fs.readFileSync(this.path(config.signing_key)));
    this.federationKey = rawOf(crypto.createPublicKey(fs.readFileSync(this.path(config.federation_key))));
    this.rawKey = rawOf(this.signingKey);
    this.state = this.path(config.state);
    fs.mkdirSync(`${this.state}/attempts`, { recursive: true, mode: 0o700 });
    this.schemaBytes = fs.readFileSync(this.path(config.schema));
    this.schema = readSchema(this.schemaBytes);
    this.rows = readRows(this.path(config.data), this.schema);
    this.features = config.features ?? FEATURES;
    this.works = new Map();
    this.newest = new Map();
    this.rosterPause = 1000;
    this.busy = new Set();
  }

  log(event, fields = {}) {
    process.stderr.write(`${JSON.stringify({ at: new Date().toISOString(), event, ...fields })}\n`);
  }

  member(role, name) { return memberOf(this.roster, role, name); }

  accepts(member) {
    return member.name === this.name || this.policy.accepted_members.some((each) => plain(each) === sha256(member.signing_key).toString('hex'));
  }

  signed(kind, message) {
    return sign(this.federation, kind, 'party', encode(kind, message), this.signingKey);
  }

  async start() {
    this.lock = await lock(this.state);
    this.ledger = new Ledger(`${this.state}/ledger.jsonl`, budgetOf(this.policy.epsilon, this.policy.delta));
    this.held = new Set([...this.ledger.attempts.values()].filter((each) => each.kind === 'reserve').map((each) => each.attempt));
    if (!fs.existsSync(`${this.state}/secret`)) store(`${this.state}/secret`, crypto.randomBytes(32));
    this.secret = fs.readFileSync(`${this.state}/secret`);
    this.witnesses = new Witnesses(this, this.state);
    this.coordinator = new Coordinator(this.config, this.path);
    this.rosterFile = `${this.state}/roster.signed`;
    if (fs.existsSync(this.rosterFile)) this.takeRoster(decode('Signed', fs.readFileSync(this.rosterFile)));
    await this.fetchRoster();
    const digests = { schemas: [schemaDigest(this.schemaBytes)], columns: [columnsDigest(this.schema)] };
    const features = { federation: this.federation, party: this.name, features: this.features, version: '0.3.0 (JavaScript)', signed_at_unix_s: now(), ...digests };
    await this.coordinator.call('SubmitFeatures', { features: this.signed('Features', features) });
    this.log('started', { rows: this.rows.length, schema: digests.schemas[0].toString('hex'), fingerprint: fingerprint(sha256(this.rawKey)), entries: `${this.ledger.head.entries}` });
    await Promise.all([this.watchWitnesses(), this.watchWork()]);
  }

  takeRoster(signed) {
    const roster = openRoster(this.federation, signed, this.federationKey, this.roster?.version ?? 0n);
    if (roster.version > (this.roster?.version ?? 0n)) store(this.rosterFile, encode('Signed', signed));
    this.roster = roster;
  }

  async fetchRoster() {
    this.rosterAskedAt = Date.now();
    const { roster } = await this.coordinator.call('FetchRoster', {}, { service: 'MemberService' });
    this.takeRoster(roster);
  }

  // Does something; once more with the newest roster where this one seems old. Who is unknown to it, anyone may send, so
  // that the roster is then fetched at a pace that falls.
  async withNewestRoster(work) {
    try {
      return work();
    } catch (error) {
      const unknown = ['PEER_UNKNOWN', 'SIGNATURE_INVALID'].includes(error.code);
      if (!['ROSTER_STALE', 'ROSTER_EXPIRED'].includes(error.code) && !(unknown && Date.now() - this.rosterAskedAt > this.rosterPause)) throw error;
      const before = this.roster.version;
      await this.fetchRoster().catch((failed) => this.log('roster refused', { error: failed.message }));
      this.rosterPause = this.roster.version > before ? 1000 : unknown ? Math.min(3600e3, 2 * this.rosterPause) : this.rosterPause;
      return work();
    }
  }

  async watchWitnesses() {
    for (let [confirmed, looked] = [false, 0]; ; await pause(1)) {
      confirmed &&= this.witnesses.enough();
      if (confirmed && Date.now() - looked < 60e3) continue;
      await this.witnesses.look();
      looked = Date.now();
      if (confirmed || !this.witnesses.enough()) continue;
      confirmed = true;
      this.log('ledger confirmed', { members: [...this.witnesses.confirmed.keys()] });
      this.pump();
    }
  }

  async watchWork() {
    for (let cursor = '0'; ;) {
      const found = await this.coordinator.call('FetchWork', { cursor: `${cursor}`, wait_s: 20 }, { seconds: 35 });
      cursor = found.cursor;
      for (const challenge of found.challenges) {
        this.witnesses.answer(challenge).catch((error) => this.log('challenge not answered', { error: error.message }));
      }
      for (const work of found.work) this.works.set(sha256(work.query.payload).toString('hex'), work);
      this.sweep();
      this.pump();
    }
  }

  // Begins every query that has news and is not at work.
  pump() {
    for (const [id, work] of this.works) {
      if (this.busy.has(id) || !this.witnesses.enough()) continue;
      this.works.delete(id);
      this.busy.add(id);
      this.handle(id, work).catch((error) => this.log('work failed', { query: id, attempt: work.attempt, error: error.message }))
        .finally(() => { this.busy.delete(id); this.pump(); });
    }
  }

  file(attempt) { return `${this.state}/attempts/${attempt}.json`; }

  load(attempt) {
    return fs.existsSync(this.file(attempt)) ? JSON.parse(fs.readFileSync(this.file(attempt), 'utf8')) : null;
  }

  save(attempt, content) { store(this.file(attempt), JSON.stringify(content)); }

  // Ends an attempt: its keys go, and its reservation too unless an earlier process made it.
  end(attempt) {
    if (!this.held.has(attempt)) this.ledger.release(attempt);
    for (const file of [this.file(attempt), `${this.state}/attempts/${attempt}.upload`]) fs.rmSync(file, { force: true });
  }

  sweep() {
    for (const name of fs.readdirSync(`${this.state}/attempts`).filter((each) => each.endsWith('.json'))) {
      const attempt = name.slice(0, -5);
      if (now() > BigInt(this.load(attempt).expires) + GRACE) this.end(attempt);
    }
  }

  // --- One query ----------------------------------------------------------------------------------------------------

  async handle(id, work) {
    const queryId = Buffer.from(id, 'hex');
    const learner = await this.withNewestRoster(() => this.verifyWork(queryId, work));
    const number = work.attempt;
    const attempt = `${id}-${number}`;
    if (number < (this.newest.get(id) ?? 1)) return null;
    this.newest.set(id, number);
    for (let earlier = 1; earlier < number; earlier++) this.end(`${id}-${earlier}`);
    if ([COMPLETE, FAILED, LOST].includes(work.phase)) return this.end(attempt);
    const toAnswer = work.phase === ANSWERING && [SILENT, PENDING].includes(work.state);
    const toPrepare = [ANSWERING, PREPARING].includes(work.phase) && work.state === ACCEPTED;
    const toUpload = work.phase === UPLOADING && work.state === IN_COHORT;
    if (!toAnswer && !toPrepare && !toUpload) return null;
    const common = { query_id: queryId, attempt: number, party: this.name };
    try {
      const query = decode('Query', work.query.payload);
      need(number <= query.max_attempts, 'ATTEMPT_MISMATCH', 'more attempts than the query allows');
      const plan = await this.withNewestRoster(() => this.check(query, learner));
      if (toAnswer) await this.accept(query, plan, attempt, common);
      if ((toAnswer && !query.features.includes('question')) || toPrepare) await this.prepare(attempt, common);
      if (toUpload) await this.upload(query, plan, attempt, common, work);
    } catch (error) {
      if (!(error instanceof Refused) || error.sent) throw error;
      this.log('refused', { query: id, attempt: number, error: error.message });
      if (this.ledger.attempts.get(attempt)?.kind === 'charge') throw error;
      this.end(attempt);
      await this.coordinator.call('SubmitAnswer', { refusal: this.signed('Refusal', { ...common, code: error.code }) });
    }
    return null;
  }

  // What comes before anything is answered: a learner of the roster signed the query, and from attempt 2 on the retry.
  verifyWork(queryId, work) {
    const learner = this.roster.members.find((each) => each.role === 3 && sha256(each.signing_key).equals(work.query.key_id));
    need(learner, 'PEER_UNKNOWN', 'no learner of the roster has this key');
    verify(this.federation, 'Query', 'learner', work.query, learner.signing_key);
    need(work.attempt >= 1, 'ATTEMPT_MISMATCH');
    if (work.attempt > 1) {
      need(work.retry, 'ATTEMPT_MISMATCH', 'no retry');
      const retry = open(this.federation, 'Retry', 'learner', work.retry, learner.signing_key);
      need(retry.query_id.equals(queryId) && retry.attempt === work.attempt && retry.learner === learner.name, 'ATTEMPT_MISMATCH');
    }
    return learner;
  }

  // Whether the query is valid and this party's policy allows it.
  check(query, learner) {
    const { policy } = this;
    need(query.learner === learner.name, 'SENDER_MISMATCH', query.learner);
    need(!this.roster.not_after_unix_s || now() <= this.roster.not_after_unix_s + GRACE, 'ROSTER_EXPIRED');
    const plan = checkQuery(query, learner, { federation: this.federation, now: now(), rosterVersion: this.roster.version, ownSchema: this.schemaBytes, features: this.features });
    const key = policy.learners[learner.name];
    need(key && plain(key) === sha256(learner.signing_key).toString('hex'), 'POLICY_LEARNER');
    need(policy.designs.includes(query.kind), 'POLICY_DESIGN', query.kind);
    need(query.purpose || !policy.purpose_required, 'POLICY_PURPOSE');
    const limits = query.max_attempts <= policy.attempts_per_query && plan.count <= policy.predicates_per_query
      && query.not_after_unix_s - query.created_at_unix_s <= BigInt(policy.lifetime_per_query_s)
      && Number(query.delta.numerator) / Number(query.delta.denominator) <= policy.delta_per_query;
    need(limits, 'POLICY_LIMITS');
    numbers.seedOf(query, this.name, this.signingKey);
    const asked = query.binding.seeds.map((each) => this.roster.members.find((member) => member.role === 1 && member.name === each.party)).filter(Boolean);
    const accepted = this.checkCohortSize(query, asked).size;
    const [most, k] = [Math.min(asked.length, query.max_parties), query.mask_neighbours];
    need(k === 0 || k >= most - 1 || k > Math.min(accepted, most) - honestOf(query, most), 'MASKS_TOO_FEW');
    need(this.rows.length && BigInt(this.rows.length) <= query.max_rows, 'PLAN_INFEASIBLE', 'no rows, or more than the query allows');
    return plan;
  }

  // Cohorts may be no smaller than this, and as many of their members must be accepted.
  checkCohortSize(query, members) {
    const { smallest_cohort: smallest, assumed_colluders: c } = this.policy;
    const least = Math.max(c + 2, query.honest_parties + c, smallest);
    const accepted = members.filter((each) => this.accepts(each));
    need(query.cohort_min >= least && accepted.length >= least, 'POLICY_COHORT');
    const strangers = members.length - accepted.length;
    need(!query.noise_of_cohort || strangers + c <= query.cohort_min - query.honest_parties, 'POLICY_COHORT', 'more may collude than the noise allows for');
    return new Set(accepted.map((each) => each.name));
  }

  // Computes, reserves and answers. What is computed is on disk before the ledger and the answer speak of it, so that a
  // party that was killed goes on wherever it was: the acceptance follows from the file and the ledger.
  async accept(query, plan, attempt, common) {
    const cost = chargeOf(query, plan);
    const said = { ...common, rows: BigInt(this.rows.length), roster_version: this.roster.version };
    if (query.features.includes('question')) {
      this.ledger.room(cost);
      return this.send('SubmitAnswer', { acceptance: this.signed('Acceptance', { ...said, mask_key: rawOf(numbers.newMaskKey()) }) });
    }
    if (!this.load(attempt)) {
      this.ledger.room(cost);
      need(!this.ledger.attempts.has(attempt), 'UNAVAILABLE', 'reserved before, and nothing is left of it');
      this.save(attempt, await this.compute(query, plan));
    }
    const known = this.load(attempt);
    if (!known.acceptance) {
      if (!this.ledger.attempts.has(attempt)) this.ledger.reserve(attempt, cost);
      const acceptance = { ...said, rows: BigInt(known.rows), mask_key: rawOf(maskKeyOf(known)), ledger_head: this.ledger.headOf(attempt) };
      const signed = this.signed('Acceptance', acceptance);
      known.acceptance = encode('Signed', signed).toString('base64');
      this.save(attempt, known);
      this.witnesses.addOwn(signed);
      this.log('accepted', { query: common.query_id.toString('hex'), attempt: common.attempt, entries: `${this.ledger.head.entries}` });
    }
    return this.send('SubmitAnswer', { acceptance: decode('Signed', Buffer.from(known.acceptance, 'base64')) });
  }

  // The values with this party's share of the noise, and what will hide them.
  async compute(query, plan) {
    const share = shareOf(query, plan);
    const values = sumsOf(query, plan.schema, this.rows, this.secret).map((each) => `${each + sample(share)}`);
    const count = numbers.slotsOf(values, this.rows.length, query.encoding, plan.n).length + 1; // one more for the tag
    const hiding = [];
    for (let i = 0; i < count; i++) {
      hiding.push(numbers.obfuscator(plan.n).toString(16));
      await breathe();
    }
    const maskKey = numbers.newMaskKey().export({ format: 'der', type: 'pkcs8' }).toString('base64');
    return { expires: `${query.not_after_unix_s}`, rows: this.rows.length, maskKey, values, hiding };
  }

  // A call whose refusal is no reason to answer with one.
  async send(method, request) {
    try {
      return await this.coordinator.call(method, request, { seconds: 150 });
    } catch (error) {
      error.sent = true;
      // Another answer of this party was there: a second copy of it may run.
      if (error.code === 'ANSWER_CONFLICT') await this.witnesses.doubt();
      throw error;
    }
  }

  async prepare(attempt, common) {
    need(this.load(attempt)?.acceptance, 'UNAVAILABLE', 'no contribution of this attempt');
    await this.send('SubmitReady', { ready: this.signed('Ready', common) });
  }

  // Verifies a cohort's acceptances. Returns each with its message.
  openCohort(query, cohort, common, own) {
    need(cohort.query_id.equals(common.query_id) && cohort.attempt === common.attempt, 'ATTEMPT_MISMATCH', 'cohort');
    const asked = new Set(query.binding.seeds.map((each) => each.party));
    need(cohort.acceptances.length <= this.roster.members.length, 'MESSAGE_MALFORMED', 'more members than the roster has');
    const members = cohort.acceptances.map((signed) => {
      const member = this.member('party', decode('Acceptance', signed.payload).party);
      const acceptance = open(this.federation, 'Acceptance', 'party', signed, member.signing_key);
      need(acceptance.query_id.equals(common.query_id) && acceptance.attempt === common.attempt, 'ATTEMPT_MISMATCH', member.name);
      need(asked.has(member.name), 'PARTY_NOT_ASKED', member.name);
      need(acceptance.rows >= 1n && acceptance.mask_key.length === 32 && acceptance.roster_version >= 1n, 'MESSAGE_MALFORMED', member.name);
      need(acceptance.roster_version <= this.roster.version, 'ROSTER_STALE', member.name);
      return { member, acceptance, signed };
    });
    need(new Set(members.map((each) => each.member.name)).size === members.length, 'MESSAGE_MALFORMED', 'a member twice');
    const mine = members.find((each) => each.member.name === this.name);
    need(mine, 'COHORT_EXCLUDED');
    need(encode('Signed', mine.signed).toString('base64') === own, 'ANSWER_CONFLICT', 'not this party\'s acceptance');
    need(members.length >= query.cohort_min && members.length <= query.max_parties, 'COHORT_TOO_SMALL');
    need(members.reduce((sum, each) => sum + each.acceptance.rows, 0n) <= query.max_rows, 'PLAN_INFEASIBLE', 'rows of the cohort');
    const accepted = this.checkCohortSize(query, members.map((each) => each.member));
    const colluding = accepted.size - honestOf(query, members.length);
    const names = members.map((each) => each.member.name);
    need(!numbers.masksTooFew(names, accepted, numbers.cohortDigest(cohort), query.mask_neighbours, colluding), 'MASKS_TOO_FEW');
    return members;
  }

  async upload(query, plan, attempt, common, work) {
    const known = this.load(attempt);
    need(known?.acceptance, 'UNAVAILABLE', 'no contribution of this attempt');
    const members = await this.withNewestRoster(() => this.openCohort(query, work.cohort, common, known.acceptance));
    const cohortDigest = numbers.cohortDigest(work.cohort);
    if (known.cohort) need(known.cohort === cohortDigest.toString('hex'), 'ANSWER_CONFLICT', 'another cohort than the one that was charged');
    const size = Math.floor(CHUNK / numbers.ciphertextBytes(plan.n)) * numbers.ciphertextBytes(plan.n);
    const masked = `${this.state}/attempts/${attempt}.upload`;
    if (!known.cohort) {
      store(masked, this.mask(query, plan, known, members, cohortDigest, common));
      known.cohort = cohortDigest.toString('hex');
      for (const secret of ['maskKey', 'values', 'hiding']) delete known[secret];
      this.save(attempt, known);
    }
    const bytes = fs.readFileSync(masked);
    const chunks = Array.from({ length: Math.ceil(bytes.length / size) }, (_, i) => bytes.subarray(i * size, (i + 1) * size));
    const hashes = chunks.map((each) => sha256(each));
    const upload = numbers.uploadDigest(hashes);
    need(now() <= query.not_after_unix_s + GRACE, 'QUERY_EXPIRED');
    this.witnesses.addCohort(members);
    this.ledger.charge(attempt, known.cohort, upload.toString('hex'));
    if (!known.receipt) {
      const counts = { chunks: chunks.length, ciphertexts: bytes.length / numbers.ciphertextBytes(plan.n) };
      const receipt = { ...common, cohort_digest: cohortDigest, upload_digest: upload, ...counts, ledger_head: this.ledger.head };
      known.receipt = encode('Signed', this.signed('Receipt', receipt)).toString('base64');
      this.save(attempt, known);
    }
    const receipt = decode('Signed', Buffer.from(known.receipt, 'base64'));
    let taken = false;
    for (const [index, chunk] of chunks.entries()) {
      if (work.chunks_held.includes(index)) continue;
      const message = { query_id: common.query_id, attempt: common.attempt, chunk: { index, ciphertexts: chunk, content_hash: hashes[index] } };
      const answer = await this.send('UploadChunk', index === chunks.length - 1 ? { ...message, receipt } : message);
      taken ||= answer.receipt_taken;
    }
    if (!taken) await this.send('SubmitReceipt', { receipt });
    this.log('uploaded', { query: common.query_id.toString('hex'), attempt: common.attempt, members: members.length });
  }

  // The ciphertexts of the values under the cohort's masks, and of the tag: what is uploaded.
  mask(query, plan, known, members, cohortDigest, { query_id: queryId, attempt }) {
    const maskKey = maskKeyOf(known);
    const topUp = topUpOf(query, plan, members.length);
    // From what a copy of this machine has too: two top-ups on one share would be two releases.
    const key = numbers.hkdf(maskKey.export({ format: 'der', type: 'pkcs8' }), sha256(known.values.join()), 32, 'radofed-foreign/top-up', NUL, u32(members.length));
    const values = numbers.drawnFrom(key, () => known.values.map((each) => BigInt(each) + (topUp ? sample(topUp) : 0n)));
    const slots = numbers.slotsOf(values, BigInt(known.rows), query.encoding, plan.n);
    const context = { name: this.name, queryId, attempt, cohortDigest, count: slots.flat().length, valueBits: query.encoding.value_bits };
    const names = members.map((each) => each.member.name);
    const keys = new Map(members.map((each) => [each.member.name, each.acceptance.mask_key]));
    const peers = numbers.peersOf(this.name, names, cohortDigest, query.mask_neighbours).map((each) => [each, keys.get(each)]);
    const { masks, tag: maskOfTag } = numbers.masksOf(maskKey, peers, context);
    const seed = numbers.seedOf(query, this.name, this.signingKey);
    const { tag } = numbers.tagOf(values, maskKey, maskOfTag, seed, query.binding.opening_key, context);
    const numbersToSend = [...numbers.plaintexts(slots, masks, query.encoding), tag];
    const hiding = known.hiding.map((each) => BigInt(`0x${each}`));
    return Buffer.concat(numbersToSend.map((each, i) => numbers.toBytes(numbers.encrypt(plan.n, each, hiding[i]), numbers.ciphertextBytes(plan.n))));
  }
}

if (process.argv[1] && import.meta.url.endsWith(path.basename(process.argv[1]))) {
  new Party(process.argv[2] ?? '.').start().catch((error) => {
    process.stderr.write(`${error.stack}\n`);
    process.exit(1);
  });
}
