// Messages of protos/rado/v1 and their signatures (docs/protocol.md, sections 2 and 3).
import crypto from 'node:crypto';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import protobuf from 'protobufjs';

const PROTOS = path.resolve(path.dirname(fileURLToPath(import.meta.url)), '../../protos');
const root = new protobuf.Root();
root.resolvePath = (origin, target) => path.resolve(PROTOS, target);
root.loadSync(['query', 'party_service', 'member_service', 'join'].map((name) => `rado/v1/${name}.proto`), { keepCase: true });
root.resolveAll();

/** What this party says no to, with a code of section 9. */
export class Refused extends Error {
  constructor(code, detail = '') {
    super(`${code} ${detail}`);
    this.code = code;
  }
}

export const need = (holds, code, detail) => {
  if (!holds) throw new Refused(code, detail);
};

export const sha256 = (...parts) => crypto.createHash('sha256').update(Buffer.concat(parts.map((each) => Buffer.from(each)))).digest();
export const u32 = (number) => Buffer.from([number >>> 24, number >>> 16, number >>> 8, number]);
export const named = (name) => Buffer.concat([Buffer.from([Buffer.byteLength(name)]), Buffer.from(name)]);
export const NUL = Buffer.from([0]);
export const typeOf = (name) => root.lookupType(`rado.v1.${name}`);
export const methodsOf = (service) => root.lookupService(`rado.v1.${service}`).methods;

// Refuses what the schema of the message does not have: protobufjs would skip it.
function walk(type, bytes) {
  const reader = protobuf.Reader.create(bytes);
  while (reader.pos < reader.len) {
    const tag = reader.uint32();
    const field = type.fieldsById[tag >>> 3];
    const inner = field?.resolvedType instanceof protobuf.Type;
    const long = field && (inner || field.type === 'string' || field.type === 'bytes');
    const wires = !field ? [] : long ? [2] : field.repeated ? [0, 2] : [0];
    need(wires.includes(tag & 7), 'FIELD_UNKNOWN', `${type.name} has no field ${tag >>> 3} of wire type ${tag & 7}`);
    if ((tag & 7) === 0) {
      const value = reader.int64();
      need(!(field.resolvedType instanceof protobuf.Enum) || field.resolvedType.valuesById[Number(value)] !== undefined, 'MESSAGE_MALFORMED', field.name);
      continue;
    }
    const part = reader.bytes();
    if (inner) walk(field.resolvedType, part);
    else if (field.type === 'string') new TextDecoder('utf-8', { fatal: true }).decode(part);
  }
}

function withBigInts(type, object) {
  for (const field of type.fieldsArray) {
    const convert = field.resolvedType instanceof protobuf.Type ? (value) => value && withBigInts(field.resolvedType, value)
      : /64$/.test(field.type) ? BigInt : null;
    if (!convert || object[field.name] === undefined || object[field.name] === null) continue;
    object[field.name] = field.repeated ? object[field.name].map(convert) : convert(object[field.name]);
  }
  return object;
}

/** Reads a response to FetchWork: work with a field that this party does not know is skipped. */
export function decodeWork(bytes) {
  const response = decode('FetchWorkResponse', bytes, false);
  const reader = protobuf.Reader.create(bytes);
  const known = [];
  while (reader.pos < reader.len) {
    const tag = reader.uint32();
    if (tag !== 10) { reader.skipType(tag & 7); continue; }
    try { walk(typeOf('Work'), reader.bytes()); known.push(true); } catch { known.push(false); }
  }
  return { ...response, work: response.work.filter((_, i) => known[i]) };
}

/** Reads a message strictly; 64-bit integers become BigInt, absent messages null. */
export function decode(name, bytes, strict = true) {
  const type = typeOf(name);
  try {
    if (strict) walk(type, bytes);
    const options = { longs: String, bytes: Buffer, defaults: true, oneofs: true };
    return withBigInts(type, type.toObject(type.decode(bytes), options));
  } catch (error) {
    throw error instanceof Refused ? error : new Refused('MESSAGE_MALFORMED', `${name}: ${error.message}`);
  }
}

const withLongs = (value) => (typeof value === 'bigint' ? value.toString() : Buffer.isBuffer(value) ? value
  : Array.isArray(value) ? value.map(withLongs)
    : value && typeof value === 'object' ? Object.fromEntries(Object.entries(value).map(([key, each]) => [key, withLongs(each)])) : value);
export const encode = (name, object) => Buffer.from(typeOf(name).encode(typeOf(name).fromObject(withLongs(object))).finish());

export const publicKeyOf = (raw, curve = 'Ed25519') => crypto.createPublicKey({ format: 'jwk', key: { kty: 'OKP', crv: curve, x: Buffer.from(raw).toString('base64url') } });
export const rawOf = (key) => Buffer.from((key.type === 'private' ? crypto.createPublicKey(key) : key).export({ format: 'jwk' }).x, 'base64url');
export const fingerprint = (keyId) => keyId.toString('hex').match(/..../g).join(':');

const signedBytes = (federation, kind, role, payload) => Buffer.concat([Buffer.from(`rado.v1\0${federation}\0${kind}\0${role}\0`), payload]);

export function sign(federation, kind, role, payload, privateKey) {
  const signature = crypto.sign(null, signedBytes(federation, kind, role, payload), privateKey);
  return { payload, key_id: sha256(rawOf(privateKey)), signature };
}

// The most bytes of a payload, of each kind that others send.
const LIMITS = { Query: 524288, Acceptance: 912, Receipt: 912, Challenge: 2048, Witness: 3584, Retry: 1024 };

/** Verifies an envelope with a raw public key. */
export function verify(federation, kind, role, signed, rawKey) {
  need(signed?.payload && rawKey?.length === 32, 'SIGNATURE_INVALID', kind);
  need(signed.payload.length <= (LIMITS[kind] ?? Infinity), 'MESSAGE_TOO_LARGE', kind);
  const valid = sha256(rawKey).equals(signed.key_id) && signed.signature.length === 64
    && crypto.verify(null, signedBytes(federation, kind, role, signed.payload), publicKeyOf(rawKey), signed.signature);
  need(valid, 'SIGNATURE_INVALID', kind);
}

/** Verifies an envelope and returns its payload's message. */
export function open(federation, kind, role, signed, rawKey) {
  verify(federation, kind, role, signed, rawKey);
  return decode(kind, signed.payload);
}

const NAME = /^[a-z][a-z0-9-]{0,62}$/;
const ROLES = ['', 'party', 'coordinator', 'learner'];

/** Verifies a roster: `seen` is the highest version that was ever accepted. */
export function openRoster(federation, signed, federationKey, seen) {
  const roster = open(federation, 'Roster', 'federation', signed, federationKey);
  need(roster.federation === federation, 'FEDERATION_MISMATCH', 'roster');
  const { version, issued_at_unix_s: issued, not_after_unix_s: end } = roster;
  need(version >= 1n && version < 1n << 63n && (!end || end > issued), 'MESSAGE_MALFORMED', 'roster: version or time');
  need(roster.version >= seen, 'ROSTER_STALE', `version ${roster.version}, seen ${seen}`);
  const [names, keys, sans, hashes] = [new Set(), new Set(), new Set(), new Set()];
  for (const member of roster.members) {
    const san = `rado://${federation}/${ROLES[member.role]}/${member.name}`;
    const coordinator = member.role === 2;
    const good = NAME.test(member.name) && member.role >= 1 && member.role <= 3 && member.certificate_san === san
      && member.signing_key.length === (coordinator ? 0 : 32) && [0, 32].includes(member.tls_key_hash.length)
      && !names.has(member.name) && !sans.has(san) && !hashes.has(member.tls_key_hash.toString('hex')) && (coordinator || !keys.has(member.signing_key.toString('hex')));
    need(good, 'MESSAGE_MALFORMED', `roster: member ${member.name}`);
    if (member.tls_key_hash.length) hashes.add(member.tls_key_hash.toString('hex'));
    names.add(member.name); sans.add(san); keys.add(member.signing_key.toString('hex'));
  }
  need(roster.members.filter((member) => member.role === 2).length === 1, 'MESSAGE_MALFORMED', 'roster: one coordinator');
  return roster;
}

/** The member of a roster with this role and name. Refuses one that is not there. */
export function memberOf(roster, role, name) {
  const member = roster.members.find((each) => each.role === ROLES.indexOf(role) && each.name === name);
  need(member, 'PEER_UNKNOWN', `${role} ${name}`);
  return member;
}
