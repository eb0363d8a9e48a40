// How this party joins a federation (docs/protocol.md, sections 2 and 3):
//   node join.mjs request DIRECTORY FEDERATION NAME ROWS     makes keys and NAME.request, and prints the digits to read out
//   node join.mjs install DIRECTORY FILE.admission DIGITS    checks the answer, and the digits of the federation's key
import crypto from 'node:crypto';
import fs from 'node:fs';
import path from 'node:path';
import { decode, encode, memberOf, need, open, openRoster, publicKeyOf, rawOf, sha256, sign } from './messages.mjs';
import { toBig } from './numbers.mjs';

/** The 30 digits that people compare. */
export const digitsOf = (data) => (toBig(sha256(data)) % 10n ** 30n).toString().padStart(30, '0').replace(/(\d{5})(?=\d)/g, '$1 ');

// ASN.1 in DER: just what a certificate request needs.
function der(tag, ...parts) {
  const content = Buffer.concat(parts);
  const length = content.length < 128 ? [content.length] : content.length < 256 ? [0x81, content.length] : [0x82, content.length >> 8, content.length & 255];
  return Buffer.concat([Buffer.from([tag, ...length]), content]);
}
const [INTEGER, BITS, OCTETS, OID, TEXT, SEQUENCE, SET] = [0x02, 0x03, 0x04, 0x06, 0x0c, 0x30, 0x31];
const oid = (digits) => der(OID, Buffer.from(digits, 'hex'));
const [COMMON_NAME, EXTENSIONS, ALTERNATIVE_NAME, ECDSA_SHA256] = ['550403', '2a864886f70d01090e', '551d11', '2a8648ce3d040302'].map(oid);

/** A PKCS #10 request of a P-256 key, PEM, with a common name and a URI as the only alternative name. */
export function certificateRequest(key, name, uri) {
  const subject = der(SEQUENCE, der(SET, der(SEQUENCE, COMMON_NAME, der(TEXT, Buffer.from(name)))));
  const alternative = der(SEQUENCE, ALTERNATIVE_NAME, der(OCTETS, der(SEQUENCE, der(0x86, Buffer.from(uri)))));
  const attributes = der(0xa0, der(SEQUENCE, EXTENSIONS, der(SET, der(SEQUENCE, alternative))));
  const spki = crypto.createPublicKey(key).export({ format: 'der', type: 'spki' });
  const body = der(SEQUENCE, der(INTEGER, Buffer.from([0])), subject, spki, attributes);
  const signature = der(BITS, Buffer.from([0]), crypto.sign('sha256', body, key));
  const lines = der(SEQUENCE, body, der(SEQUENCE, ECDSA_SHA256), signature).toString('base64').match(/.{1,64}/g);
  return Buffer.from(['-----BEGIN CERTIFICATE REQUEST-----', ...lines, '-----END CERTIFICATE REQUEST-----', ''].join('\n'));
}

function request(directory, federation, name, rows) {
  fs.mkdirSync(directory, { recursive: true, mode: 0o700 });
  const signingKey = crypto.generateKeyPairSync('ed25519').privateKey;
  const tlsKey = crypto.generateKeyPairSync('ec', { namedCurve: 'prime256v1' }).privateKey;
  const pem = (key) => key.export({ format: 'pem', type: 'pkcs8' });
  for (const [file, key] of [['signing.key', signingKey], ['tls.key', tlsKey]]) fs.writeFileSync(path.join(directory, file), pem(key), { mode: 0o600, flag: 'wx' });
  const payload = encode('JoinRequest', {
    federation, role: 1, name, signing_key: rawOf(signingKey), certificate_request: certificateRequest(tlsKey, name, `rado://${federation}/party/${name}`),
    ...(BigInt(rows) > 0n ? { rows_at_least: BigInt(rows) } : {}), made_at_unix_s: BigInt(Math.floor(Date.now() / 1000)),
  });
  fs.writeFileSync(path.join(directory, `${name}.request`), encode('Signed', sign(federation, 'JoinRequest', 'member', payload, signingKey)));
  console.log(digitsOf(payload));
}

function install(directory, file, digits) {
  const read = (name) => fs.readFileSync(path.join(directory, name));
  const { federation_key: key, admission: signed } = decode('AdmissionFile', fs.readFileSync(file));
  need(digitsOf(key).replaceAll(' ', '') === digits.replaceAll(' ', ''), 'SIGNATURE_INVALID', 'the digits of the federation\'s key are others');
  const requestFile = fs.readdirSync(directory).find((each) => each.endsWith('.request'));
  const { payload } = decode('Signed', read(requestFile));
  const { federation, name } = decode('JoinRequest', payload);
  const admission = open(federation, 'Admission', 'federation', signed, key);
  need(admission.request_digest.equals(sha256(payload)), 'MESSAGE_MALFORMED', 'an answer to another request');
  const member = memberOf(openRoster(federation, admission.roster, key, 0n), 'party', name);
  const tlsKey = crypto.createPrivateKey(read('tls.key'));
  const own = member.signing_key.equals(rawOf(crypto.createPrivateKey(read('signing.key'))))
    && member.tls_key_hash.equals(sha256(crypto.createPublicKey(tlsKey).export({ format: 'der', type: 'spki' })));
  need(own, 'MESSAGE_MALFORMED', 'the roster lists other keys');
  const certificate = new crypto.X509Certificate(admission.certificate);
  const authorities = admission.authority.toString().match(/-----BEGIN[^]*?-----END CERTIFICATE-----/g).map((each) => new crypto.X509Certificate(each));
  need(certificate.checkPrivateKey(tlsKey) && certificate.subjectAltName === `URI:rado://${federation}/party/${name}`
    && authorities.some((each) => certificate.verify(each.publicKey)), 'MESSAGE_MALFORMED', 'the certificate is not this member\'s');
  const files = {
    'federation.pub': publicKeyOf(key).export({ format: 'pem', type: 'spki' }), 'certificate.pem': admission.certificate, 'ca.pem': admission.authority,
    'roster.signed': encode('Signed', admission.roster),
  };
  for (const [each, content] of Object.entries(files)) fs.writeFileSync(path.join(directory, each), content, { mode: 0o600 });
  console.log(`${name} of ${federation}, coordinator ${admission.coordinator_address}; own key ${digitsOf(member.signing_key)}`);
}

if (import.meta.url.endsWith(path.basename(process.argv[1] ?? ''))) {
  const [command, ...rest] = process.argv.slice(2);
  if (command === 'request' && rest.length === 4) request(...rest);
  else if (command === 'install' && rest.length === 3) install(...rest);
  else { console.error('usage: join.mjs request DIRECTORY FEDERATION NAME ROWS | install DIRECTORY FILE DIGITS'); process.exit(2); }
}
