// A learner in another language, written from protos/rado/v1 and docs/protocol.md alone: it submits a query, follows it,
// fetches the total, verifies it, decrypts it and prints the rados as JSON.
//
//   node learner.mjs PROTOS MEMBER_DIRECTORY COORDINATOR FEDERATION NAME SCHEMA_JSON RADOS

import crypto from "node:crypto";
import fs from "node:fs";
import path from "node:path";
import grpc from "@grpc/grpc-js";
import protoLoader from "@grpc/proto-loader";
import protobuf from "protobufjs";

const [protos, directory, target, federation, name, schemaFile, rados] = process.argv.slice(2);
const read = (file) => fs.readFileSync(path.join(directory, file));
const files = ["member_service", "learner_service", "query", "roster", "cohort", "release"].map((f) => `rado/v1/${f}.proto`);

// Messages as bytes (to sign), and clients.
const root = new protobuf.Root();
root.resolvePath = (_, file) => path.join(protos, file);
root.loadSync(files);
const type = (message) => root.lookupType(`rado.v1.${message}`);
const encode = (message, fields) => Buffer.from(type(message).encode(type(message).create(fields)).finish());
const decode = (message, bytes) => type(message).toObject(type(message).decode(bytes), { longs: Number, defaults: true, arrays: true });
const api = grpc.loadPackageDefinition(
  protoLoader.loadSync(files, { includeDirs: [protos], longs: Number, defaults: true, arrays: true, oneofs: true, keepCase: false })
).rado.v1;
const credentials = grpc.credentials.createSsl(read("ca.pem"), read("tls.key"), read("certificate.pem"));
const members = new api.MemberService(target, credentials);
const learners = new api.LearnerService(target, credentials);
const call = (client, method, request, seconds = 40) =>
  new Promise((resolve, reject) =>
    client[method](request, { deadline: Date.now() + seconds * 1000 }, (error, response) => {
      if (!error) return resolve(response);
      error.message += ` [rado-code ${error.metadata?.get("rado-code")}]`;
      return reject(error);
    })
  );

// Section 2: envelopes.
const sha256 = (...parts) => parts.reduce((hash, part) => hash.update(part), crypto.createHash("sha256")).digest();
const u32 = (x) => { const b = Buffer.alloc(4); b.writeUInt32BE(x); return b; };
const signedBytes = (kind, role, payload) => Buffer.concat([Buffer.from(`rado.v1\0${federation}\0${kind}\0${role}\0`), payload]);
const rawPublicKey = (key) => (key.type === "private" ? crypto.createPublicKey(key) : key).export({ type: "spki", format: "der" }).subarray(-32);
const publicKeyOf = (raw) =>
  crypto.createPublicKey({ key: Buffer.concat([Buffer.from("302a300506032b6570032100", "hex"), raw]), format: "der", type: "spki" });
const signingKey = crypto.createPrivateKey(read("signing.key"));
const sign = (kind, payload) => ({
  payload,
  keyId: sha256(rawPublicKey(signingKey)),
  signature: crypto.sign(null, signedBytes(kind, "learner", payload), signingKey),
});
const open = (kind, role, raw, envelope) => {
  if (!crypto.verify(null, signedBytes(kind, role, envelope.payload), publicKeyOf(raw), envelope.signature))
    throw new Error(`the ${kind}'s signature does not hold`);
  return decode(kind, envelope.payload);
};
const expect = (condition, what) => { if (!condition) throw new Error(what); };

// Section 5: a Paillier key with a Blum modulus.
const gcd = (a, b) => (b ? gcd(b, a % b) : a);
const power = (base, exponent, modulus) => {
  let result = 1n;
  for (base %= modulus; exponent; exponent >>= 1n, base = (base * base) % modulus) if (exponent & 1n) result = (result * base) % modulus;
  return result;
};
const inverse = (a, m) => { let [r, s, x, y] = [m, a % m, 0n, 1n]; while (s) { const q = r / s; [r, s, x, y] = [s, r - q * s, y, x - q * y]; } return ((x % m) + m) % m; };
const toBuffer = (x) => { const h = x.toString(16); return Buffer.from(h.length % 2 ? `0${h}` : h, "hex"); };
const toInteger = (bytes) => BigInt(`0x${Buffer.from(bytes).toString("hex")}`);
const blumPrime = () => crypto.generatePrimeSync(1024, { add: 4n, rem: 3n, bigint: true });
let p, q, n;
do [p, q] = [blumPrime(), blumPrime()]; while (p === q || gcd(p - 1n, q - 1n) !== 2n || (n = p * q).toString(2).length !== 2048);
const lambda = ((p - 1n) * (q - 1n)) / 2n;
const decrypt = (c) => ((((power(c, lambda, n * n) - 1n) / n) * inverse(lambda, n)) % n);

// Section 3: the roster.
const fetched = await call(members, "FetchRoster", {});
const roster = open("Roster", "federation", rawPublicKey(crypto.createPublicKey(read("federation.pub"))), fetched.roster);
const parties = roster.members.filter((m) => m.role === root.lookupEnum("rado.v1.Role").values.ROLE_PARTY);

// Section 6: the binding. One seed for all parties, sealed for each, and a commitment to it.
const X25519 = Buffer.from("302a300506032b656e032100", "hex");
const opening = crypto.generateKeyPairSync("x25519");
const agreed = (raw) =>
  crypto.diffieHellman({ privateKey: opening.privateKey, publicKey: crypto.createPublicKey({ key: Buffer.concat([X25519, raw]), format: "der", type: "spki" }) });
const hkdf = (secret, salt, info, length) => Buffer.from(crypto.hkdfSync("sha256", secret, salt, Buffer.concat(info.map((part) => Buffer.from(part))), length));
const named = (text) => Buffer.concat([Buffer.from([Buffer.byteLength(text)]), Buffer.from(text)]);
const little = (bytes) => toInteger(Buffer.from(bytes).reverse());
const FIELD = (1n << 255n) - 19n;
const montgomery = (raw) => {
  const y = little(raw) & ((1n << 255n) - 1n);
  const u = ((1n + y) * power((((1n - y) % FIELD) + FIELD) % FIELD, FIELD - 2n, FIELD)) % FIELD;
  return Buffer.from(u.toString(16).padStart(64, "0"), "hex").reverse();
};
const nonce = crypto.randomBytes(32), seed = crypto.randomBytes(32);
const seeds = parties.map((m) => m.name).sort().map((party) => {
  const shared = agreed(montgomery(parties.find((m) => m.name === party).signingKey));
  const pad = hkdf(shared, nonce, ["rado.v1/tag-seed\0", named(party)], 32);
  return { party, seed: seed.map((byte, at) => byte ^ pad[at]) };
});
const binding = {
  openingKey: opening.publicKey.export({ type: "spki", format: "der" }).subarray(-32),
  seeds,
  commitment: hkdf(seed, nonce, ["rado.v1/tag-seed-commitment\0"], 32),
};

// Section 5: the query.
const schema = fs.readFileSync(schemaFile);
const d = Number(JSON.parse(schema).features.length) + (JSON.parse(schema).bias ? 1 : 0);
const now = Math.floor(Date.now() / 1000);
const encoding = { fractionBits: 16, valueBits: 38, slotBits: 40 };
const key = encode("PaillierKey", { learner: name, modulus: toBuffer(n), notBeforeUnixS: now - 60, notAfterUnixS: now + 7200 });
const fields = {
  federation, learner: name, nonce, rosterVersion: roster.version, features: ["base-0-3"], binding,
  schema, schemaDigest: sha256("rado.v1/schema\0", schema),
  rados: { rados: Number(rados), plain: {} },
  encoding, paillierKey: sign("PaillierKey", key), delta: { numerator: 1, denominator: 1000000 },
  maxRows: 1000000, maxParties: parties.length, cohortMin: parties.length, honestParties: 1,
  createdAtUnixS: now, notAfterUnixS: now + 3600, answerWithinS: 60, prepareWithinS: 60, uploadWithinS: 60, maxAttempts: 1,
};
const query = encode("Query", fields);
const { queryId } = await call(learners, "SubmitQuery", { query: sign("Query", query) });
expect(sha256(query).equals(queryId), "the query's id is not its hash");

// Section 8: follow, fetch, verify.
let status, cursor = 0;
do ({ status, cursor } = await call(learners, "WatchQuery", { queryId, cursor, waitS: 20 }));
while (!["PHASE_COMPLETE", "PHASE_FAILED", 5, 6].includes(status.phase));
expect(["PHASE_COMPLETE", 5].includes(status.phase), `the query failed: ${status.code} ${status.detail}`);
const { total } = await call(learners, "FetchTotal", { queryId });
const memberOf = (party) => roster.members.find((m) => m.name === party);
const acceptances = total.cohort.acceptances.map((envelope) => {
  const said = decode("Acceptance", envelope.payload);
  return open("Acceptance", "party", memberOf(said.party).signingKey, envelope);
});
expect(acceptances.every((a) => Buffer.from(a.queryId).equals(queryId) && a.attempt === total.cohort.attempt), "another attempt's acceptance");
const cohortDigest = sha256("rado.v1/cohort\0", queryId, u32(total.cohort.attempt), u32(acceptances.length),
  ...total.cohort.acceptances.map((a) => sha256(a.payload)));
total.receipts.forEach((envelope, i) => {
  const receipt = open("Receipt", "party", memberOf(acceptances[i].party).signingKey, envelope);
  expect(receipt.party === acceptances[i].party && Buffer.from(receipt.cohortDigest).equals(cohortDigest), "another cohort's receipt");
});

// Section 6: decrypt, unpack, check.
const width = 2 * 256;
const slots = Math.floor((2048 - 1) / encoding.slotBits);
const K = BigInt(acceptances.length), half = 1n << BigInt(encoding.valueBits - 1), modulus = 1n << BigInt(encoding.valueBits);
const centre = (t) => { const x = (((t - K * half) % modulus) + modulus) % modulus; return x >= half ? x - modulus : x; };
const rows = acceptances.reduce((sum, a) => sum + a.rows, 0);
const values = [];
let tag;
for (let index = 0; index < total.chunks; index++) {
  const { chunk } = await call(learners, "FetchTotalChunk", { queryId, index });
  expect(sha256(chunk.ciphertexts).equals(chunk.contentHash), "a chunk's hash is wrong");
  for (let at = 0; at < chunk.ciphertexts.length; at += width) {
    let plaintext = decrypt(toInteger(chunk.ciphertexts.subarray(at, at + width)));
    if (index === total.chunks - 1 && at + width === chunk.ciphertexts.length) { tag = plaintext; continue; }
    const opened = [];
    for (let slot = 0; slot < slots; slot++, plaintext >>= BigInt(encoding.slotBits)) opened.push(centre(plaintext & ((1n << BigInt(encoding.slotBits)) - 1n)));
    expect(plaintext === 0n && opened[0] === BigInt(rows), "a check slot is wrong");
    values.push(...opened.slice(1));
  }
}

// Section 6: the tag.
const PRIME = (1n << 130n) - 5n;
const attempt = u32(total.cohort.attempt);
const alpha = toInteger(hkdf(seed, queryId, ["rado.v1/tag-coefficient\0", attempt], 48)) % PRIME;
const pads = acceptances.map((a) => toInteger(hkdf(agreed(a.maskKey), cohortDigest, ["rado.v1/tag-pad\0", queryId, attempt, named(a.party)], 48)));
let wanted = 0n;
for (const value of values.slice(0, Number(rados) * d).reverse()) wanted = ((wanted + value) * alpha) % PRIME;
wanted = (pads.reduce((sum, pad) => sum + pad, wanted) % PRIME + PRIME) % PRIME;
expect(tag % PRIME === wanted, "the tag is not that of the values");
const result = [];
for (let j = 0; j < Number(rados); j++) result.push(values.slice(j * d, (j + 1) * d).map(Number));
console.log(JSON.stringify({ query_id: Buffer.from(queryId).toString("hex"), rows, parties: acceptances.map((a) => a.party), rados: result }));
process.exit(0);
