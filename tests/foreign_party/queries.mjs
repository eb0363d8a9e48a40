// Which queries are valid (docs/protocol.md, section 5), what this party's rows add up to (section 6), and what an answer
// costs. This party answers statistics, moments and gradients; its policy refuses rados and feature maps.
import { createHmac } from 'node:crypto';
import { need, open } from './messages.mjs';
import { agree, bitsOf, ceilRoot, discreteGaussian, floorDiv, gcd, isqrt, jacobi, laplaceShare, newMaskKey, power, toBig, truncate } from './numbers.mjs';
import { dimension, encodeReal, groupsOf, readSchema, schemaDigest } from './records.mjs';

export const FEATURES = ['base-0-3', 'cohort-noise', 'mask-graph', 'question', 'short-opening'];
const ONE30 = 1n << 30n;
const within = (value, low, high) => value >= low && value <= high;
const valid = (holds, detail) => need(holds, 'QUERY_INVALID', detail);
const max = (a, b) => (a > b ? a : b);
const abs = (a) => (a < 0n ? -a : a);

const rational = (value, name) => valid(value && value.denominator > 0n && gcd(value.numerator, value.denominator) === 1n, `${name} in lowest terms`);
/** floor(value^2 scale) of a rational. */
const square = (value, scale) => (value.numerator ** 2n * scale) / value.denominator ** 2n;

// Code points that a purpose may not have.
const RANGES = `0-1F 7F-A0 AD 600-605 61C 6DD 70F 890-891 8E2 1680 180E 2000-200F 2028-202F 205F-206F 3000 D800-F8FF FDD0-FDEF
  FEFF FFF0-FFFB 110BD 110CD 13430-1343F 1BCA0-1BCA3 1D173-1D17A E0000-E00FF F0000-10FFFF`
  .split(/\s+/).map((range) => range.split('-').map((digits) => parseInt(digits, 16)));

function checkPurpose(purpose) {
  const points = [...purpose].map((each) => each.codePointAt(0));
  const bad = (point) => (point & 0xffff) >= 0xfffe || RANGES.some(([first, last = first]) => within(point, first, last));
  valid(points.length <= 200 && purpose.trim().length === purpose.length && !points.some(bad), 'purpose');
}

const LCM = Array.from({ length: 1000 }, (_, i) => BigInt(i + 1)).reduce((l, i) => (l * i) / gcd(l, i));

function checkKey(query, federation, learner) {
  need(query.paillier_key, 'KEY_INVALID', 'no key');
  const key = open(federation, 'PaillierKey', 'learner', query.paillier_key, learner.signing_key);
  const n = toBig(key.modulus);
  const fits = (holds, detail) => need(holds, 'KEY_INVALID', detail);
  fits(key.learner === query.learner, 'of another learner');
  fits(key.modulus[0] !== 0 && n & 1n && within(bitsOf(n), 2048, 4096), 'modulus');
  fits(key.not_before_unix_s <= query.created_at_unix_s + 300n && key.not_after_unix_s >= query.not_after_unix_s, 'out of date');
  valid(Boolean(key.subgroup) === query.features.includes('short-opening'), 'short-opening');
  if (key.subgroup) {
    const { generator, order_bits: bits } = key.subgroup;
    const g = toBig(generator);
    fits(generator.length && generator[0] !== 0 && g > 1n && g < n && jacobi(g, n) === 1, 'generator');
    fits(within(bits, 512, bitsOf(n)) && gcd(power(g, LCM, n) - 1n + n, n) === 1n, 'subgroup');
  }
  return n;
}

// --- Noise: each party's share, and what it adds once it knows a smaller cohort --------------------------------------

/** How many of a cohort of so many members the noise counts as honest. */
export const honestOf = (query, members) => (query.noise_of_cohort ? members - (query.cohort_min - query.honest_parties) : query.honest_parties);

/** A share as [kind, parameter, ...]: with noise of the cohort, that of the largest one. */
export function shareOf(query, plan) {
  const honest = BigInt(honestOf(query, query.max_parties));
  if (plan.epsilon) return ['laplace', query.statistic.laplace.scale, honest, 1n];
  const h = BigInt(query.honest_parties);
  return ['gaussian', query.noise_of_cohort ? max(3n, ceilRoot(h * plan.sigma ** 2n, honest)) : plan.sigma];
}

/** What tops a share up in a cohort of so many members, or null. */
export function topUpOf(query, plan, members) {
  if (!query.noise_of_cohort) return null;
  const [honest, most] = [members, query.max_parties].map((each) => BigInt(honestOf(query, each)));
  if (plan.epsilon) {
    const [k, n] = [most - honest, most * honest];
    return k === 0n ? null : ['laplace', query.statistic.laplace.scale, n / gcd(k, n), k / gcd(k, n)];
  }
  const missing = BigInt(query.honest_parties) * plan.sigma ** 2n - honest * shareOf(query, plan)[1] ** 2n;
  return missing <= 0n ? null : ['gaussian', max(3n, ceilRoot(missing, honest))];
}

/** A sample of what shareOf and topUpOf return. */
export function sample([kind, parameter, h, times]) {
  if (kind === 'gaussian') return discreteGaussian(parameter);
  let sum = 0n;
  for (let i = 0n; i < times; i++) sum += laplaceShare(parameter, h);
  return sum;
}

const cohortsOf = (query) => Array.from({ length: query.max_parties - query.cohort_min + 1 }, (_, i) => query.cohort_min + i);

/** ceil(root(2 k s^2 (ln(2 N) + 64 ln 2))) + 1, with the largest variance that a cohort may have in place of k s^2. */
function tail(query, sigma, count) {
  let variance = BigInt(query.max_parties) * sigma ** 2n;
  if (query.noise_of_cohort) {
    const squared = (share) => (share ? share[1] ** 2n : 0n);
    variance = cohortsOf(query).map((n) => BigInt(n) * (squared(shareOf(query, { sigma })) + squared(topUpOf(query, { sigma }, n)))).reduce(max);
  }
  return BigInt(Math.ceil(Math.sqrt(2 * Number(variance) * (Math.log(2 * count) + 64 * Math.LN2)))) + 1n;
}

// What the sum of `parties` shares exceeds with probability 2^-64 / count at most, by Chernoff's bound.
function laplaceTail(scale, shares, parties, count) {
  const t = Number(scale.numerator) / Number(scale.denominator);
  const q = Math.exp(-1 / t);
  let best = Infinity;
  for (let i = 1; i < 200; i++) {
    const l = i / 200 / t;
    const moment = (parties / shares) * (2 * Math.log1p(-q) - Math.log1p(-q * Math.exp(l)) - Math.log1p(-q * Math.exp(-l)));
    best = Math.min(best, (moment + 64 * Math.LN2 + Math.log(2 * count)) / l);
  }
  return BigInt(Math.ceil(best));
}

const sigma = (value) => valid(within(value, 3n, 1n << 48n), 'share_sigma');

function checkForm(form, width) {
  const total = form.weights.reduce((sum, each) => sum + abs(each), abs(form.constant));
  valid(form.coordinates.length === form.weights.length && total < 1n << 32n && !form.weights.includes(0n)
    && form.coordinates.every((place, i) => place < width && (i === 0 || place > form.coordinates[i - 1])), 'form');
  return Math.max(1, form.weights.length);
}

const operandsOf = (node) => (node.node === 'complement' ? [node.complement] : node[node.node]?.places ?? []);

function checkNodes({ nodes, predicates }, schema) {
  const [depth, size, seen] = [[], [], new Set()];
  const [width, groups] = [dimension(schema), groupsOf(schema)];
  nodes.forEach((node, place) => {
    const value = node[node.node];
    const typeAt = (at) => groups[at]?.type;
    const operands = operandsOf(node);
    let own = 1;
    if (node.node === 'flag') valid(['boolean', 'threshold'].includes(typeAt(value)), 'flag');
    else if (node.node === 'equals') valid(typeAt(value.feature) === 'category' && value.value < groups[value.feature].width, 'equals');
    else if (['at_least', 'above'].includes(node.node)) {
      rational(value.bound, 'bound');
      const day = value.bound.denominator <= 1n << 32n && abs(value.bound.numerator) <= value.bound.denominator << 24n;
      valid(typeAt(value.feature) === 'real' || (typeAt(value.feature) === 'day' && day), 'bound');
    }
    else if (node.node === 'non_negative') own = checkForm(value, width);
    else if (node.node === 'clipped') { valid(value.form && within(value.scale, 1n, (1n << 32n) - 1n), 'scale'); own = checkForm(value.form, width); }
    else if (['all_of', 'any_of'].includes(node.node)) { valid(operands.length >= 2, 'operands'); own = operands.length - 1; }
    else valid(['constant', 'label_is_positive', 'complement'].includes(node.node), `node ${node.node}`);
    valid(operands.every((each) => each < place), 'order of nodes');
    depth.push(1 + Math.max(0, ...operands.map((each) => depth[each])));
    size.push(own + operands.reduce((sum, each) => sum + size[each], 0));
    valid(depth[place] <= 32 && size[place] <= 131072, 'size of a predicate');
    seen.add(JSON.stringify(node, (_, each) => (typeof each === 'bigint' ? `${each}` : each)));
  });
  valid(seen.size === nodes.length && nodes.length <= 131072 && new Set(predicates).size === predicates.length && predicates.length > 0, 'nodes');
  const done = new Set();
  const visit = (place) => {
    if (done.has(place)) return;
    valid(place < nodes.length, 'predicates');
    operandsOf(nodes[place]).forEach(visit);
    valid(done.size === place, 'order of nodes');
    done.add(place);
  };
  predicates.forEach(visit);
  valid(done.size === nodes.length, 'a node that nothing uses');
}

// Rules of each kind, with the number of values, the largest sum, and the squared sensitivity D^2 of one replaced record.
const KINDS = {
  statistic(query, schema, f) {
    const { nodes, predicates, noise, share_sigma, laplace } = query.statistic;
    checkNodes(query.statistic, schema);
    valid(f <= 20 && noise, 'noise');
    need(noise !== 'local', 'POLICY_DESIGN', 'local-statistic');
    const count = predicates.length;
    const rowsPart = query.max_rows << BigInt(f);
    if (noise === 'share_sigma') {
      sigma(share_sigma);
      return { count, largest: rowsPart + tail(query, share_sigma, count), squared: BigInt(count) << BigInt(2 * f), sigma: share_sigma };
    }
    rational(laplace.scale, 'scale');
    const { numerator, denominator } = laplace.scale;
    valid(numerator * 64n >= denominator && numerator <= denominator << 40n && laplace.shares === query.honest_parties, 'laplace');
    const few = !query.noise_of_cohort || cohortsOf(query).every((each) => { const top = topUpOf(query, { epsilon: true }, each); return !top || (top[2] <= 65536n && top[3] <= 64n); });
    valid(few, 'shares of the cohort');
    need(numerator <= denominator << 16n, 'POLICY_LIMITS', 'this party draws Laplace noise of scales up to 2^16');
    const largest = rowsPart + laplaceTail(laplace.scale, laplace.shares, query.max_parties, count);
    return { count, largest, epsilon: { numerator: (BigInt(count) << BigInt(f)) * denominator, denominator: numerator } };
  },
  moments(query, schema, f) {
    const { norm_bound: bound, edge_multiplier: k, share_sigma, products_of_each_class: each } = query.moments;
    const d = dimension(schema);
    rational(bound, 'norm_bound');
    valid(bound.numerator > (schema.bias ? bound.denominator : 0n) && !each, 'norm_bound');
    valid(f <= 20 && BigInt(d) << BigInt(2 * f) < 1n << 63n && within(k, 1n, 1n << 48n), 'moments');
    sigma(share_sigma);
    const count = d + (d * (d + 1)) / 2 - (schema.bias ? 1 : 0);
    const largest = query.max_rows * max(k << BigInt(f), 7n << BigInt(2 * f)) + tail(query, share_sigma, count);
    // Edges are no longer than root Q. Theirs differ by 2 root Q at most, and their products, of which squares weigh 25 and
    // pairs 49 < 2 25, by 25 |vv' - ww'|^2 <= 25 (|v|^4 + |w|^4) at most.
    const Q = square(bound, 1n << BigInt(2 * f));
    return { count, largest, squared: 4n * k * k * Q + 50n * Q * Q, sigma: share_sigma };
  },
  gradient(query, schema, f) {
    const { loss, theta, clip, share_sigma, basis, interval_weight, class_weights } = query.gradient;
    const d = dimension(schema);
    const small = (each) => within(each, -(1n << 31n), 1n << 31n);
    rational(clip, 'clip');
    valid([1, 2].includes(loss) && theta.length === d && theta.every(small) && clip.numerator > 0n && f <= 16, 'gradient');
    valid(!interval_weight && !class_weights.length && [0, d * d].includes(basis.length) && basis.every(small), 'gradient');
    sigma(share_sigma);
    const S = square(clip, 1n << BigInt(2 * f + 24));
    const rows = basis.length ? Array.from({ length: d }, (_, i) => basis.slice(i * d, i * d + d).reduce((sum, each) => sum + abs(each), 0n)) : [];
    const L = rows.length ? (rows.reduce(max) + 4095n) / 4096n + 1n : 1n;
    const edge = L << BigInt(f);
    valid(S < 1n << 63n && theta.reduce((sum, each) => sum + abs(each), 0n) * edge < 1n << 62n && BigInt(d) * edge * edge < 1n << 62n
      && edge << 12n < 1n << 53n, 'margins');
    return { count: d, largest: query.max_rows * isqrt(S) + tail(query, share_sigma, d), squared: 4n * S, sigma: share_sigma };
  },
};

/** Checks a query, whose learner's signature was verified, against section 5. Returns what its answer needs. */
export function checkQuery(query, learner, { federation, now, rosterVersion, ownSchema, features = FEATURES }) {
  need(query.federation === federation, 'FEDERATION_MISMATCH');
  need(query.features.includes('base-0-3') && query.features.every((each) => features.includes(each)), 'FEATURE_MISSING', `${query.features}`);
  valid(query.features.every((each, i) => i === 0 || each > query.features[i - 1]), 'features');
  const { noise_of_cohort: follows, mask_neighbours: k } = query;
  valid(follows === query.features.includes('cohort-noise') && (k > 0) === query.features.includes('mask-graph') && !query.persons, 'a field without its feature');
  valid((k === 0 || (k % 2 === 0 && within(k, 20, 65536))) && (!follows || query.max_parties <= 4096), 'mask_neighbours or max_parties');
  need(query.roster_version <= rosterVersion, 'ROSTER_STALE', `planned with version ${query.roster_version}`);
  const { created_at_unix_s: created, not_after_unix_s: end, encoding, delta, binding } = query;
  need(created < end && within(now, created - 300n, end + 300n), 'QUERY_EXPIRED');
  valid(within(query.nonce.length, 16, 64), 'nonce');
  rational(delta, 'delta');
  valid(delta.numerator > 0n && delta.numerator < delta.denominator, 'delta');
  valid(query.honest_parties >= 1 && query.honest_parties <= query.cohort_min && query.cohort_min <= query.max_parties && query.max_parties <= 65536, 'cohort');
  valid(query.max_rows >= 1n, 'max_rows');
  for (const name of ['answer', 'prepare', 'upload']) valid(within(query[`${name}_within_s`], 1, 604800), `${name}_within_s`);
  valid(within(query.max_attempts, 1, 100) && within(query.quorum_wait_s, 0, 604800), 'attempts');
  checkPurpose(query.purpose);
  if (query.epoch !== undefined) valid(/^[A-Za-z0-9._:-]{1,40}$/.test(query.epoch), 'epoch');
  valid(encoding && encoding.slot_bits % 8 === 0 && within(encoding.slot_bits, 8, 64) && encoding.value_bits >= 1, 'encoding');
  valid(binding && binding.commitment.length === 32 && binding.opening_key.length === 32 && binding.seeds.length > 0, 'binding');
  agree(newMaskKey(), binding.opening_key, 'QUERY_INVALID'); // not of low order
  valid(binding.seeds.every((each, i) => each.seed.length === 32 && (i === 0 || Buffer.compare(Buffer.from(binding.seeds[i - 1].party), Buffer.from(each.party)) < 0)), 'seeds');
  valid(schemaDigest(query.schema).equals(query.schema_digest), 'schema_digest');
  const schema = readSchema(query.schema);
  const part = query.held_back;
  if (part) {
    rational(part.share, 'share');
    const { numerator, denominator } = part.share;
    const pieces = part.pieces === 0 ? part.piece === 0 : within(part.pieces, 2, 65536) && part.piece < part.pieces;
    valid([1, 2].includes(part.part) && numerator < denominator && (numerator > 0n || (numerator === 0n && part.pieces && part.part === 1)) && pieces, 'held_back');
    valid(query.kind !== 'rados' || query.rados.design === 'gaussian', 'held_back');
  }
  const n = checkKey(query, federation, learner);
  valid(query.kind, 'kind');
  need(KINDS[query.kind], 'POLICY_DESIGN', query.kind);
  need(!query.feature_map, 'POLICY_DESIGN', 'feature_map');
  need(query.epoch === undefined, 'POLICY_DESIGN', 'epoch');
  need(schemaDigest(ownSchema).equals(query.schema_digest), 'SCHEMA_MISMATCH');
  const plan = KINDS[query.kind](query, schema, encoding.fraction_bits);
  valid(plan.count <= 1 << 28, 'values');
  const half = 1n << BigInt(encoding.value_bits - 1);
  const carries = encoding.value_bits > encoding.slot_bits || 1n << BigInt(encoding.slot_bits - encoding.value_bits) < BigInt(query.max_parties);
  need(!carries && plan.largest < half && query.max_rows < half, 'ENCODING_OVERFLOW');
  return { ...plan, n, schema };
}

// --- Sums -------------------------------------------------------------------------------------------------------------

const shorten = (x, f) => BigInt(Math.trunc(x / 2 ** (30 - f)));

/** The rows of the part that a query is about; the others count, and contribute zero. */
export function usableRows(rows, part, secret) {
  const key = part && createHmac('sha256', secret).update('held-back').digest();
  const bound = part && (part.share.numerator * (1n << 64n) + part.share.denominator - 1n) / part.share.denominator;
  const [from, to] = !part ? [] : part.part === 2 ? [0n, bound] : [bound, 1n << 64n];
  const cut = (piece) => from + ((to - from) * BigInt(piece) + BigInt(part.pieces) - 1n) / BigInt(part.pieces);
  return rows.filter((row, i) => {
    if (!row.usable || !part) return row.usable;
    const u = createHmac('sha256', key).update(row.id ?? `${i}`).digest().readBigUInt64BE();
    return part.pieces ? u >= cut(part.piece) && u < cut(part.piece + 1) : u >= from && u < to;
  });
}

/** A row's edge vector, without its label, clipped to the length whose square without the bias is `S`. */
export function clipped(x, S, bias) {
  const free = bias ? x.slice(0, -1) : x;
  const length = free.reduce((sum, v) => sum + v * v, 0n);
  if (length <= S) return x;
  const short = free.map((v) => (v < 0n ? -1n : 1n) * isqrt((v * v * S) / length));
  return bias ? [...short, x.at(-1)] : short;
}

// A rational as the nearest double, a half to even.
export function nearestDouble(numerator, denominator) {
  const [sign, p] = [numerator < 0n ? -1 : 1, abs(numerator)];
  if (p === 0n) return 0;
  const shift = BigInt(64 - bitsOf(p) + bitsOf(denominator));
  const [top, bottom] = shift >= 0n ? [p << shift, denominator] : [p, denominator << -shift];
  let digits = top / bottom; // 64 or 65 bits; a last bit stands for a remainder, and Number() rounds correctly
  if (top % bottom) digits |= 1n;
  return sign * Number(digits) * 2 ** Number(-shift);
}

// A double as a fraction.
function fraction(value) {
  let denominator = 1n;
  while (!Number.isInteger(value)) { value *= 2; denominator *= 2n; }
  return [BigInt(value), denominator];
}

// A bound in the units of a row's coordinate: null if every row is at least it, Infinity if none is.
function encodedBound({ numerator, denominator }, [lower, upper]) {
  const compare = (double) => { const [p, q] = fraction(double); return numerator * q - p * denominator; };
  if (compare(lower) < 0n) return -Infinity;
  if (compare(upper) > 0n) return Infinity;
  return encodeReal(nearestDouble(numerator, denominator), [lower, upper]);
}

export function statisticSums({ nodes, predicates }, schema, rows, f) {
  const one = 1n << BigInt(f);
  const groups = groupsOf(schema);
  const truth = (holds) => (holds ? one : 0n);
  const formOf = (form, x) => form.coordinates.reduce((sum, place, i) => sum + form.weights[i] * BigInt(x[place]), form.constant * ONE30);
  const evaluators = nodes.map((node) => {
    const value = node[node.node];
    switch (node.node) {
      case 'constant': return () => truth(value);
      case 'label_is_positive': return ({ y }) => truth((y === 1) === value);
      case 'flag': return ({ x }) => truth(x[groups[value].start] > 0);
      case 'equals': return ({ x }) => truth(x[groups[value.feature].start + value.value] > 0);
      case 'at_least': case 'above': {
        const { start: at, bounds } = groups[value.feature];
        const bound = encodedBound(value.bound, bounds);
        return node.node === 'above' ? ({ x }) => truth(x[at] > bound) : ({ x }) => truth(x[at] >= bound);
      }
      case 'non_negative': return ({ x }) => truth(formOf(value, x) >= 0n);
      case 'clipped': return ({ x }) => {
        const share = floorDiv(formOf(value.form, x) << BigInt(f), value.scale * ONE30);
        return share < 0n ? 0n : share > one ? one : share;
      };
      case 'complement': return (_, done) => one - done[value];
      case 'all_of': return (_, done) => value.places.map((each) => done[each]).reduce((a, b) => (a < b ? a : b));
      default: return (_, done) => value.places.map((each) => done[each]).reduce(max);
    }
  });
  const sums = predicates.map(() => 0n);
  for (const row of rows) {
    const done = [];
    for (const evaluate of evaluators) done.push(evaluate(row, done));
    predicates.forEach((place, i) => { sums[i] += done[place]; });
  }
  return sums;
}

export function momentsSums({ norm_bound: bound, edge_multiplier: k }, bias, edges, f) {
  const one = 1n << BigInt(2 * f);
  const S = square(bound, one) - (bias ? one : 0n);
  const d = edges.length ? edges[0].x.length : 0;
  const [linear, products] = [Array(d).fill(0n), Array((d * (d + 1)) / 2).fill(0n)];
  for (const { y, x } of edges) {
    const v = clipped(x, S, bias);
    let at = 0;
    for (let i = 0; i < d; i++) {
      linear[i] += BigInt(y) * v[i];
      for (let j = i; j < d; j++) products[at++] += v[i] * v[j];
    }
  }
  let at = 0;
  for (let i = 0; i < d; i++) for (let j = i; j < d; j++) products[at++] *= i === j ? 5n : 7n;
  return [...linear.map((each) => k * each), ...(bias ? products.slice(0, -1) : products)];
}

/** The weight of a row in units of 2^-12, and its edge in the basis. */
export function gradientOf({ loss, theta, clip, basis }, y, x, f) {
  const e = x.map((v) => BigInt(y) * v);
  const z = basis.length ? e.map((_, i) => truncate(e.reduce((sum, v, j) => sum + basis[i * e.length + j] * v, 0n), 4096n)) : e;
  const margin = z.reduce((sum, v, j) => sum + theta[j] * v, 0n);
  const i = Math.max(-16384, Math.min(16383, Number(floorDiv(margin, 1n << BigInt(f + 10)))));
  let w = BigInt(loss === 1 ? Math.round(4096 / (1 + Math.exp((2 * i + 1) / 2048))) : i < 1024 ? 4096 : 0);
  const length = z.reduce((sum, v) => sum + v * v, 0n);
  const S = square(clip, 1n << BigInt(2 * f + 24));
  if (w * w * length > S) w = isqrt(S / length);
  return { w, z };
}

/** The values of a query over the party's rows, before noise. */
export function sumsOf(query, schema, rows, secret) {
  const f = query.encoding.fraction_bits;
  const used = usableRows(rows, query.held_back, secret);
  if (query.kind === 'statistic') return statisticSums(query.statistic, schema, used, f);
  const edges = used.map(({ y, x }) => ({ y, x: x.map((each) => shorten(each, f)) }));
  const d = dimension(schema);
  if (query.kind === 'moments') return edges.length ? momentsSums(query.moments, schema.bias, edges, f) : Array(d + (d * (d + 1)) / 2 - (schema.bias ? 1 : 0)).fill(0n);
  const sums = Array(d).fill(0n);
  for (const { y, x } of edges) {
    const { w, z } = gradientOf(query.gradient, y, x, f);
    for (let j = 0; j < d; j++) sums[j] -= w * z[j];
  }
  return sums;
}

// --- The charge: zero-concentrated privacy loss of one replaced record, in units of 2^-60, rounded up -------------------

/** rho = D^2 / (2 (h s^2 - 4)): shares of h honest parties against continuous noise, docs/explanation/proofs.md, "Integer
 * noise" (its factor e^(+-lambda) is below the 2^-40 that is added); epsilon^2 / 2 for Laplace noise. */
export function chargeOf(query, plan) {
  const [top, bottom] = plan.epsilon ? [plan.epsilon.numerator ** 2n, 2n * plan.epsilon.denominator ** 2n]
    : [plan.squared, 2n * (BigInt(query.honest_parties) * plan.sigma ** 2n - 4n)];
  return ((top << 60n) + bottom - 1n) / bottom + (1n << 20n);
}

/** The largest rho whose epsilon = rho + 2 root(rho ln(1/delta)) is at most this, rounded down. */
export function budgetOf(epsilon, delta) {
  const log = Math.log(1 / delta);
  const rho = (Math.sqrt(log + epsilon) - Math.sqrt(log)) ** 2;
  return BigInt(Math.floor(rho * (1 - 1e-9) * 2 ** 40)) << 20n;
}
