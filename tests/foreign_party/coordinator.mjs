// The connection to the coordinator: mutual TLS, deadlines and repeated calls (docs/protocol.md, sections 1 and 9).
import fs from 'node:fs';
import tls from 'node:tls';
import grpc from '@grpc/grpc-js';
import { Refused, decode, decodeWork, encode, methodsOf } from './messages.mjs';

const AGAIN = ['CALLS_TOO_MANY', 'SPOOL_FULL', 'DRAINING'];
export const pause = (seconds) => new Promise((resolve) => { setTimeout(resolve, 1000 * seconds); });

export class Coordinator {
  constructor({ coordinator, tls: files, federation }, path) {
    const [ca, key, certificate] = [files.ca, files.key, files.certificate].map((file) => fs.readFileSync(path(file)));
    const checkServerIdentity = (host, found) => {
      const wrong = tls.checkServerIdentity(host, found);
      if (wrong) return wrong;
      const role = `URI:rado://${federation}/coordinator/`;
      return found.subjectaltname?.split(', ').some((each) => each.startsWith(role)) ? undefined : new Error('the peer is no coordinator of this federation');
    };
    this.client = new grpc.Client(coordinator, grpc.credentials.createSsl(ca, key, certificate, { checkServerIdentity }));
  }

  once(service, method, request, seconds) {
    const { requestType, responseType } = methodsOf(service)[method];
    return new Promise((resolve, reject) => {
      this.client.makeUnaryRequest(`/rado.v1.${service}/${method}`, (each) => encode(requestType, each), (bytes) => (method === 'FetchWork' ? decodeWork(bytes) : decode(responseType, bytes, false)),
        request, new grpc.Metadata(), { deadline: Date.now() + 1000 * seconds }, (error, response) => {
          if (!error) return resolve(response);
          const refused = new Refused(error.metadata?.get('rado-code')[0] ?? 'UNAVAILABLE', error.details);
          refused.again = AGAIN.includes(refused.code) || [grpc.status.UNAVAILABLE, grpc.status.DEADLINE_EXCEEDED].includes(error.code);
          return reject(refused);
        });
    });
  }

  /** Calls until the coordinator answers; refusals that are not to be repeated are thrown. */
  async call(method, request = {}, { service = 'PartyService', seconds = 60 } = {}) {
    for (let limit = 0.2; ; limit = Math.min(20, 2 * limit)) {
      try {
        return await this.once(service, method, request, seconds);
      } catch (error) {
        if (!error.again) throw error;
        await pause(Math.random() * limit);
      }
    }
  }
}
