// The vectors of tests/vectors: node --test
import assert from 'node:assert';
import fs from 'node:fs';
import test from 'node:test';
import * as messages from './messages.mjs';
import * as numbers from './numbers.mjs';
import * as queries from './queries.mjs';
import * as records from './records.mjs';

const read = (name) => JSON.parse(fs.readFileSync(new URL(`../vectors/${name}.json`, import.meta.url), 'utf8'));
const hex = (text) => Buffer.from(text, 'hex');
const envelope = ({ payload, key_id, signature }) => ({ payload: hex(payload), key_id: hex(key_id), signature: hex(signature) });
const P = read('protocol');
const keys = Object.fromEntries(Object.entries(P.keys).map(([name, key]) => [name, hex(key)]));
const F = 'vectors';

test('schemas and texts', () => {
  for (const { canonical, digest } of [P.schema, P.schema_of_version_2, ...Object.values(P.schemas_of_two_labels.schemas)]) {
    records.readSchema(Buffer.from(canonical));
    assert.equal(records.schemaDigest(Buffer.from(canonical)).toString('hex'), digest);
  }
  for (const { texts, cell, form } of P.forms_of_texts) assert.equal(records.formOf(cell, texts), form);
});

test('envelopes, roster, cohort, upload', () => {
  const roster = messages.openRoster(F, envelope(P.roster), keys.federation, 3n);
  assert.equal(roster.version, 3n);
  for (const [kind, role, key, vector] of [['Query', 'learner', keys.learner, P.query], ['Receipt', 'party', keys.a, P.receipt],
    ['Refusal', 'party', keys.c, P.refusal], ['Ready', 'party', keys.a, P.ready], ...Object.entries(P.trust).filter(([k]) => k !== 'Roster')
      .map(([kind, vector]) => [kind, kind === 'Retry' ? 'learner' : 'party', kind === 'Retry' ? keys.learner : kind === 'Witness' ? keys.b : keys.a, vector])]) {
    messages.open(F, kind, role, envelope(vector), key);
  }
  const cohort = { query_id: hex(P.cohort.query_id), attempt: P.cohort.attempt, acceptances: P.acceptances.map(envelope) };
  assert.equal(numbers.cohortDigest(cohort).toString('hex'), P.cohort.digest);
  assert.equal(numbers.uploadDigest(P.upload.chunk_hashes.map(hex)).toString('hex'), P.upload.digest);
});

test('masks and tag', () => {
  const { masks, tag } = P;
  const query = messages.decode('Query', hex(P.query.payload));
  const publicOf = (raw) => messages.rawOf(numbers.x25519(hex(raw)));
  for (const [name, peer] of [['a', 'b'], ['b', 'a']]) {
    const base = { name, queryId: hex(P.query.query_id), attempt: 2, valueBits: masks.value_bits };
    const found = numbers.masksOf(numbers.x25519(hex(masks.private_keys[name])), [[peer, publicOf(masks.private_keys[peer])]],
      { ...base, cohortDigest: hex(P.cohort.digest), count: masks.ciphertexts * masks.slots });
    assert.deepEqual(found.masks.map(Number), masks.of[name]);
    const own = numbers.x25519(hex(tag.mask_private_keys[name]));
    const context = { ...base, cohortDigest: hex(tag.cohort_digest), count: 0 };
    const mask = numbers.masksOf(own, [[peer, publicOf(tag.mask_private_keys[peer])]], context).tag;
    const member = tag.members[name];
    assert.equal(`${mask}`, `${BigInt(member.mask)}`);
    const made = numbers.tagOf(member.values.map(BigInt), own, mask, hex(tag.seed), query.binding.opening_key, context);
    assert.deepEqual([made.alpha, made.pad, made.tag].map(String), [tag.coefficient, member.pad, member.tag].map(String));
  }
});

test('mask graph', () => {
  const { cohort_digest: digest, neighbours, order, peers } = P.mask_graph;
  const names = [...order].sort();
  assert.deepEqual(numbers.circleOf(names, hex(digest)), order);
  for (const [name, expected] of Object.entries(peers)) assert.deepEqual(numbers.peersOf(name, names, hex(digest), neighbours).sort(), expected);
});

test('packing and encryption', () => {
  for (const { encoding, modulus_bits, contributions } of read('packing').cases) {
    const n = 1n << BigInt(modulus_bits - 1);
    for (const { rows, values, mask, plaintexts } of contributions) {
      const slots = numbers.slotsOf(values.map(BigInt), BigInt(rows), encoding, n);
      const masks = mask ? mask.flat().map(BigInt) : Array(slots.flat().length).fill(0n);
      assert.deepEqual(numbers.plaintexts(slots, masks, encoding).map((each) => each.toString(16)), plaintexts);
    }
  }
  for (const { n, ciphertext_bytes, encryptions } of read('paillier').cases) {
    const modulus = BigInt(`0x${n}`);
    assert.equal(numbers.ciphertextBytes(modulus), Number(ciphertext_bytes));
    for (const { plaintext, r, ciphertext } of encryptions) {
      const hiding = numbers.power(BigInt(`0x${r}`), modulus, modulus * modulus);
      assert.equal(numbers.encrypt(modulus, BigInt(`0x${plaintext}`), hiding).toString(16), ciphertext);
    }
  }
});

test('sums', () => {
  const edges = ({ x, y }) => x.map((row, i) => ({ y: y[i], x: row.map(BigInt) }));
  const m = P.moments;
  const ratio = (text) => { const [numerator, denominator] = text.split('/').map(BigInt); return { numerator, denominator }; };
  const moments = { norm_bound: ratio(m.norm_bound), edge_multiplier: BigInt(m.edge_multiplier) };
  assert.deepEqual(queries.momentsSums(moments, true, edges(m), m.fraction_bits).map(Number), m.sums);
  const g = P.gradient;
  const gradient = { loss: 1, theta: g.theta.map(BigInt), clip: ratio(g.clip), basis: g.basis.flat().map(BigInt) };
  const found = edges(g).map(({ y, x }) => queries.gradientOf(gradient, y, x, g.fraction_bits));
  assert.deepEqual(found.map(({ w }) => Number(w)), g.weights);
  assert.deepEqual(g.sums.map((_, j) => Number(found.reduce((sum, { w, z }) => sum - w * z[j], 0n))), g.sums);
});

test('statistics', () => {
  const form = (weights, constant) => ({ coordinates: weights.map((_, i) => i), weights: weights.map(BigInt), constant: BigInt(constant) });
  const node = (kind, value) => ({ node: kind, [kind]: value });
  // The predicates as the vector writes them.
  const nodes = [node('non_negative', form([1], 0)), node('label_is_positive', true), node('all_of', { places: [0, 1] }),
    node('clipped', { form: form([3, -2], 1), scale: 4n }), node('complement', 3), node('label_is_positive', false), node('any_of', { places: [3, 5] })];
  const statistic = { nodes, predicates: [2, 4, 6] };
  const { x, y, usable, sums, fraction_bits: f } = P.statistic;
  const rows = x.map((row, i) => ({ y: y[i], x: row.map((each) => each * 2 ** (30 - f)), usable: usable[i] })).filter((row) => row.usable);
  assert.deepEqual(queries.statisticSums(statistic, JSON.parse(P.schema.canonical), rows, f).map(Number), sums);
});

test('valid and bad queries and rosters', () => {
  const roster = messages.openRoster(F, envelope(P.roster), keys.federation, 3n);
  const context = { federation: F, now: BigInt(P.now_unix_s), rosterVersion: 3n, ownSchema: Buffer.from(P.schema.canonical) };
  const check = (vector) => {
    const query = messages.open(F, 'Query', 'learner', envelope(vector), keys.learner);
    queries.checkQuery(query, messages.memberOf(roster, 'learner', query.learner), context);
  };
  const codeOf = (work) => { try { work(); return null; } catch (error) { return error.code ?? error; } };
  // What this party does not compute, it refuses before it looks at the rules of that kind.
  const own = ['POLICY_DESIGN', 'FEATURE_MISSING'];
  for (const [name, vector] of Object.entries(P.other_queries)) {
    const answered = ['statistic', 'statistic, Laplace', 'moments', 'moments, of the training part', 'gradient', 'gradient, in a basis'].includes(name);
    assert.ok(answered ? codeOf(() => check(vector)) === null : own.includes(codeOf(() => check(vector))), name);
  }
  for (const vector of read('protocol_bad').cases) {
    const code = codeOf(() => (vector.kind === 'Query' ? check(vector) : messages.openRoster(F, envelope(vector), keys.federation, 3n)));
    assert.ok(code === vector.code || own.includes(code), `${vector.name}: ${code} in place of ${vector.code}`);
  }
});

test('tables', () => {
  const R = read('records');
  for (const { schema, csv, rows, digest } of R.tables) {
    assert.equal(records.schemaDigest(Buffer.from(schema)).toString('hex'), digest);
    const read = records.readSchema(Buffer.from(schema));
    if (read.label.type || read.weight) continue; // this party has neither
    const found = records.rowsOf(csv, read).map(({ usable, y, x }) => ({ usable, label: usable ? y : null, coordinates: x.map((each) => each + 0) }));
    assert.deepEqual(found, rows.map(({ usable, label, coordinates }) => ({ usable, label, coordinates })));
  }
  for (const { schema, cell } of R.refused_cells) assert.throws(() => records.rowsOf(`c,y\n"${cell}",1\n`, JSON.parse(schema)), /refuses/, `${schema} ${cell}`);
});

test('from rows to uploads', () => {
  const answers = read('answer');
  for (const { query: vector, attempt, cohort_digest: digest, members } of [answers.moments, answers.statistic]) {
    const query = messages.open(F, 'Query', 'learner', envelope(vector), keys.learner);
    const schema = records.readSchema(query.schema);
    const n = BigInt(`0x${answers.p}`) * BigInt(`0x${answers.q}`);
    const acceptances = Object.values(members).map((each) => messages.decode('Acceptance', hex(each.acceptance.payload)));
    for (const [name, member] of Object.entries(members)) {
      const rows = records.rowsOf(member.csv, schema);
      const sums = queries.sumsOf(query, schema, rows, null);
      assert.deepEqual(sums.map(Number), member.sums);
      const values = sums.map((each, i) => each + BigInt(member.noise[i]));
      const slots = numbers.slotsOf(values, BigInt(rows.length), query.encoding, n);
      const maskKey = numbers.x25519(hex(member.mask_private_key));
      const context = { name, queryId: hex(vector.query_id), attempt, cohortDigest: hex(digest), count: slots.flat().length, valueBits: query.encoding.value_bits };
      const peers = acceptances.filter((each) => each.party !== name).map((each) => [each.party, each.mask_key]);
      const { masks, tag: maskOfTag } = numbers.masksOf(maskKey, peers, context);
      const { tag } = numbers.tagOf(values, maskKey, maskOfTag, hex(P.tag.seed), query.binding.opening_key, context);
      assert.equal(tag.toString(16), member.tag);
      const hiding = member.obfuscators_r.map((each) => numbers.power(BigInt(`0x${each}`), n, n * n));
      const sent = [...numbers.plaintexts(slots, masks, query.encoding), tag].map((each, i) => numbers.toBytes(numbers.encrypt(n, each, hiding[i]), numbers.ciphertextBytes(n)));
      assert.equal(Buffer.concat(sent).toString('hex'), member.chunk);
    }
  }
});

test('noise', () => {
  const moments = (draw, count) => {
    const drawn = Array.from({ length: count }, () => Number(draw()));
    return [drawn.reduce((a, b) => a + b) / count, drawn.reduce((a, b) => a + b * b, 0) / count];
  };
  const near = (found, expected, error) => assert.ok(Math.abs(found - expected) < 6 * error, `${found} in place of ${expected}`);
  const count = 5000;
  const [mean, square] = moments(() => numbers.discreteGaussian(7n), count);
  near(mean, 0, 7 / Math.sqrt(count));
  near(square, 49, 49 * Math.sqrt(2 / count));
  const [t, h] = [2.5, 3];
  const q = Math.exp(-1 / t);
  const variance = (2 * q) / (1 - q) ** 2 / h;
  const shares = moments(() => numbers.laplaceShare({ numerator: 5n, denominator: 2n }, BigInt(h)), count);
  near(shares[0], 0, Math.sqrt(variance / count));
  near(shares[1], variance, variance * Math.sqrt((3 * h + 2) / count)); // its kurtosis is 3 + 3 h and a little
  const sums = Array.from({ length: count }, () => numbers.laplaceShare({ numerator: 5n, denominator: 2n }, 2n) + numbers.laplaceShare({ numerator: 5n, denominator: 2n }, 2n));
  const zero = (1 - q) / (1 + q);
  near(sums.filter((each) => each === 0n).length / count, zero, Math.sqrt((zero * (1 - zero)) / count));
});
