// Integers of docs/protocol.md, section 6: encryption, slots, masks, the tag, and exact noise.
import crypto from 'node:crypto';
import { NUL, named, need, publicKeyOf, sha256, u32 } from './messages.mjs';

export const PRIME = 2n ** 130n - 5n;
export const toBig = (bytes) => (bytes.length ? BigInt(`0x${Buffer.from(bytes).toString('hex')}`) : 0n);
export const toBytes = (number, length) => Buffer.from(number.toString(16).padStart(2 * length, '0'), 'hex');
export const bitsOf = (number) => (number === 0n ? 0 : number.toString(2).length);
export const modulo = (a, m) => ((a % m) + m) % m;
export const floorDiv = (a, b) => (a - modulo(a, b < 0n ? -b : b)) / b;
export const truncate = (a, b) => a / b; // BigInt division rounds toward zero, as the protocol's truncation does
export const gcd = (a, b) => { while (b) [a, b] = [b, a % b]; return a < 0n ? -a : a; };

export function isqrt(number) {
  if (number < 2n) return number;
  let root = 1n << BigInt((bitsOf(number) + 1) >> 1);
  for (;;) {
    const next = (root + number / root) >> 1n;
    if (next >= root) return root;
    root = next;
  }
}

/** The least integer whose square is at least this fraction of positive integers. */
export const ceilRoot = (top, bottom) => isqrt((top + bottom - 1n) / bottom - 1n) + 1n;

export function power(base, exponent, modulus) {
  const table = [1n, base % modulus];
  for (let i = 2; i < 16; i++) table.push((table[i - 1] * base) % modulus);
  let result = 1n;
  for (const digit of exponent.toString(16)) {
    for (let i = 0; i < 4; i++) result = (result * result) % modulus;
    if (digit !== '0') result = (result * table[parseInt(digit, 16)]) % modulus;
  }
  return result;
}

export function jacobi(a, n) {
  let sign = 1;
  for (a = modulo(a, n); a; a = modulo(a, n)) {
    while (!(a & 1n)) { a >>= 1n; if ([3n, 5n].includes(n & 7n)) sign = -sign; }
    [a, n] = [n, a];
    if ((a & 3n) === 3n && (n & 3n) === 3n) sign = -sign;
  }
  return n === 1n ? sign : 0;
}

// Random bytes of the system, fetched many at a time; none is used twice.
let [pool, used, stream] = [Buffer.alloc(0), 0, null];
function randomBytes(count) {
  if (stream) return stream.update(Buffer.alloc(count));
  if (used + count > pool.length) [pool, used] = [crypto.randomBytes(Math.max(65536, count)), 0];
  const found = Buffer.from(pool.subarray(used, used + count));
  pool.fill(0, used, used += count);
  return found;
}

/** Does something whose random numbers follow from a key of 32 bytes. */
export function drawnFrom(key, work) {
  stream = crypto.createCipheriv('aes-256-ctr', key, Buffer.alloc(16));
  try { return work(); } finally { stream = null; }
}

/** A uniform integer of [0, bound). */
export function below(bound) {
  const bits = bitsOf(bound - 1n);
  const bytes = Math.ceil(bits / 8);
  for (;;) {
    const drawn = toBig(randomBytes(bytes)) >> BigInt(8 * bytes - bits);
    if (drawn < bound) return drawn;
  }
}

// --- Paillier -------------------------------------------------------------------------------------------------------

/** r^n mod n^2 of a random unit r: the slow and plain way, which rests on no further assumption. */
export function obfuscator(n) {
  for (;;) {
    const r = below(n);
    if (r && gcd(r, n) === 1n) return power(r, n, n * n);
  }
}

export const encrypt = (n, plaintext, hiding) => ((1n + n * plaintext) * hiding) % (n * n);
export const ciphertextBytes = (n) => 2 * Math.ceil(bitsOf(n) / 8);

// --- Slots, masks and the tag ---------------------------------------------------------------------------------------

/** Where values stand: per ciphertext one check slot with the rows, then values; the rest are zeros. */
export function slotsOf(values, rows, { value_bits, slot_bits }, n) {
  const width = Math.floor((bitsOf(n) - 1) / slot_bits);
  const slots = [];
  for (let start = 0; start < values.length; start += width - 1) {
    const part = values.slice(start, start + width - 1);
    slots.push([rows, ...part, ...Array(width - 1 - part.length).fill(0n)]);
  }
  return slots;
}

/** The plaintexts of slots under masks, one mask a slot through all ciphertexts. */
export function plaintexts(slots, masks, { value_bits, slot_bits }) {
  const [modulus, half] = [1n << BigInt(value_bits), 1n << BigInt(value_bits - 1)];
  let place = 0;
  return slots.map((row) => row.reduce((sum, value, i) => sum + (modulo(value + half + masks[place++], modulus) << BigInt(slot_bits * i)), 0n));
}

export const newMaskKey = () => crypto.generateKeyPairSync('x25519').privateKey;
export const x25519 = (raw) => crypto.createPrivateKey({ format: 'der', type: 'pkcs8', key: Buffer.concat([Buffer.from('302e020100300506032b656e04220420', 'hex'), raw]) });
export const hkdf = (secret, salt, length, ...info) => Buffer.from(crypto.hkdfSync('sha256', secret, salt, Buffer.concat(info.map((each) => Buffer.from(each))), length));

export function agree(privateKey, rawPublic, code = 'MESSAGE_MALFORMED') {
  let shared;
  try {
    shared = crypto.diffieHellman({ privateKey, publicKey: publicKeyOf(rawPublic, 'X25519') });
  } catch {
    shared = Buffer.alloc(32);
  }
  need(shared.some((byte) => byte), code, 'an X25519 key of low order');
  return shared;
}

/** The members in the order of a mask graph's circle. */
export const circleOf = (names, digest) => names.map((name) => [sha256('rado.v1/mask-order', NUL, digest, named(name)), name])
  .sort(([a], [b]) => Buffer.compare(a, b)).map(([, name]) => name);

/** With whom a member shares masks: with all others, or with k / 2 on each side of the circle. */
export function peersOf(name, names, digest, k) {
  const others = names.filter((each) => each !== name);
  if (k === 0 || k >= others.length) return others;
  const circle = circleOf(names, digest);
  const places = Array.from({ length: k / 2 }, (_, i) => [i + 1, -i - 1]).flat();
  return places.map((each) => circle.at((circle.indexOf(name) + each) % circle.length));
}

/** Whether those of a circle who may collude can divide the masks of the rest (section 7, step 4). */
export function masksTooFew(names, accepted, digest, k, colluding) {
  if (k === 0 || k >= names.length - 1) return false;
  const [circle, half] = [circleOf(names, digest), k / 2];
  const after = (place) => Array.from({ length: half }, (_, i) => circle[(place + i + 1) % circle.length]).filter((each) => accepted.has(each)).length;
  const places = circle.map((each, place) => place).filter((place) => accepted.has(circle[place]));
  const counts = new Map(places.map((place) => [place, after(place)]));
  const apart = (u, v) => (v - u + circle.length) % circle.length > half && (u - v + circle.length) % circle.length > half;
  return places.some((u) => places.some((v) => apart(u, v) && counts.get(u) + counts.get(v) <= colluding));
}

/** Mask of every slot, and of the tag: `peers` are [name, raw mask key] of the others of the cohort. */
export function masksOf(own, peers, { name, queryId, attempt, cohortDigest, count, valueBits }) {
  const masks = Array(count).fill(0n);
  let tag = 0n;
  for (const [peer, key] of peers) {
    const shared = agree(own, key);
    const [first, second] = Buffer.compare(Buffer.from(name), Buffer.from(peer)) < 0 ? [name, peer] : [peer, name];
    const info = [NUL, queryId, u32(attempt), named(first), named(second)];
    const sign = first === name ? 1n : -1n;
    const streamKey = hkdf(shared, cohortDigest, 32, 'rado.v1/mask', ...info);
    const stream = crypto.createCipheriv('aes-256-ctr', streamKey, Buffer.alloc(16)).update(Buffer.alloc(8 * count));
    for (let i = 0; i < count; i++) masks[i] += sign * stream.readBigUInt64LE(8 * i);
    tag += sign * toBig(hkdf(shared, cohortDigest, 48, 'rado.v1/tag-mask', ...info));
  }
  return { masks: masks.map((each) => modulo(each, 1n << BigInt(valueBits))), tag: modulo(tag, PRIME) };
}

/** The seed of the tag's coefficient, opened with the party's Ed25519 key. Refuses another one than the query's. */
export function seedOf(query, name, signingKey) {
  const sealed = query.binding.seeds.find((each) => each.party === name);
  need(sealed, 'PARTY_NOT_ASKED', name);
  const seedOfKey = Buffer.from(signingKey.export({ format: 'jwk' }).d, 'base64url');
  const own = x25519(crypto.createHash('sha512').update(seedOfKey).digest().subarray(0, 32));
  const cover = hkdf(agree(own, query.binding.opening_key), query.nonce, 32, 'rado.v1/tag-seed', NUL, named(name));
  const seed = Buffer.from(cover.map((byte, i) => byte ^ sealed.seed[i]));
  need(hkdf(seed, query.nonce, 32, 'rado.v1/tag-seed-commitment', NUL).equals(query.binding.commitment), 'SEED_MISMATCH');
  return seed;
}

export function tagOf(values, maskKey, maskOfTag, seed, openingKey, { name, queryId, attempt, cohortDigest }) {
  const alpha = toBig(hkdf(seed, queryId, 48, 'rado.v1/tag-coefficient', NUL, u32(attempt))) % PRIME;
  const info = ['rado.v1/tag-pad', NUL, queryId, u32(attempt), named(name)];
  const pad = toBig(hkdf(agree(maskKey, openingKey), cohortDigest, 48, ...info)) % PRIME;
  const sum = values.reduceRight((total, value) => modulo((total + value) * alpha, PRIME), 0n);
  return { alpha, pad, tag: modulo(pad + maskOfTag + sum, PRIME) };
}

export const cohortDigest = (cohort) => sha256('rado.v1/cohort', NUL, cohort.query_id, u32(cohort.attempt),
  u32(cohort.acceptances.length), ...cohort.acceptances.map((each) => sha256(each.payload)));
export const uploadDigest = (hashes) => sha256('rado.v1/upload', NUL, u32(hashes.length), ...hashes);

// --- Exact noise: only uniform integers and comparisons of integers ---------------------------------------------------

const coin = (numerator, denominator) => below(denominator) < numerator;

// True with probability exp(-a/b), 0 <= a/b <= 1 (Canonne, Kamath, Steinke 2020, Algorithm 1), by runs of coins a/(b k).
function expCoinBelowOne(a, b) {
  let k = 1n;
  while (coin(a, b * k)) k += 1n;
  return k % 2n === 1n;
}

export function expCoin(a, b) {
  for (; a > b; a -= b) if (!expCoinBelowOne(1n, 1n)) return false;
  return expCoinBelowOne(a, b);
}

// A discrete Laplace variable of scale t, an integer (their Algorithm 2).
function discreteLaplace(t) {
  for (;;) {
    const low = below(t);
    if (!expCoin(low, t)) continue;
    let run = 0n;
    while (expCoin(1n, 1n)) run += 1n;
    const magnitude = low + t * run;
    const negative = coin(1n, 2n);
    if (!(negative && magnitude === 0n)) return negative ? -magnitude : magnitude;
  }
}

/** A discrete Gaussian variable, P(z) proportional to exp(-z^2 / (2 s^2)), exactly (their Algorithm 3). */
export function discreteGaussian(sigma) {
  const [t, square] = [sigma + 1n, sigma * sigma];
  for (;;) {
    const z = discreteLaplace(t);
    const gap = (z < 0n ? -z : z) * t - square;
    if (expCoin(gap * gap, 2n * square * t * t)) return z;
  }
}

// A Polya variable, P(k) proportional to C(k + 1/h - 1, k) q^k with q = exp(-1/t), t a rational: a geometric variable of
// q^k is accepted with C(k + 1/h - 1, k), which falls from 1; each factor is (i + 1/h - 1) / i = (h i - h + 1) / (h i).
function polya(t, h) {
  for (;;) {
    let k = 0n;
    const whole = t.numerator / t.denominator + 1n; // q^k = exp(-k d / n): low by rejection below `whole`, the rest in runs
    for (;;) {
      const low = below(whole);
      if (!expCoin(low * t.denominator, t.numerator)) continue;
      let run = 0n;
      while (expCoin(whole * t.denominator, t.numerator)) run += 1n;
      k = low + whole * run;
      break;
    }
    let kept = true;
    for (let i = 1n; i <= k && kept; i++) kept = coin(h * i - h + 1n, h * i);
    if (kept) return k;
  }
}

/** A share of discrete Laplace noise: h shares add up to P(z) proportional to exp(-abs(z) / t). */
export const laplaceShare = (t, h) => polya(t, h) - polya(t, h);
