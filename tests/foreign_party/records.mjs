// A schema in canonical form, and a CSV file's rows as coordinates (docs/protocol.md, section 4). This party knows labels
// of two classes, and all types of features.
import fs from 'node:fs';
import { NUL, need, sha256 } from './messages.mjs';

export const ONE = 1 << 30; // coordinates are integers in units of 2^-30

const sorted = (value) => (Array.isArray(value) ? value.map(sorted) : value && typeof value === 'object'
  ? Object.fromEntries(Object.keys(value).sort().map((key) => [key, sorted(value[key])])) : value);
export const canonical = (value) => Buffer.from(JSON.stringify(sorted(value)));

/** Reads a schema's bytes. Refuses bytes that are not its canonical form. */
export function readSchema(bytes) {
  let schema = null;
  try { schema = JSON.parse(bytes.toString('utf8')); } catch { /* refused below */ }
  need(schema && canonical(schema).equals(bytes), 'QUERY_INVALID', 'the schema is not in canonical form');
  return schema;
}

export const schemaDigest = (bytes) => sha256('rado.v1/schema', NUL, bytes);

export function columnsDigest(schema) {
  const { label, schema_version, ...columns } = schema;
  return sha256('rado.v1/schema-columns', NUL, canonical(columns));
}

const real = (digits) => Buffer.from(digits, 'hex').readDoubleBE();
const DATE = /^(\d{4})-(\d\d)-(\d\d)(?:[ Tt]([01]\d|2[0-3]):[0-5]\d(?::[0-5]\d(?:\.\d{1,9})?)?)?$/;

// The day of a text, at midnight of UTC, or null.
function dayOf(text) {
  const [year, month, day] = (DATE.exec(text) ?? []).slice(1, 4).map(Number);
  if (!year) return null;
  const date = new Date(0);
  date.setUTCFullYear(year, month - 1, day);
  return date.getUTCMonth() === month - 1 && date.getUTCDate() === day ? date : null;
}
const daysAfter = (since, date) => (date - dayOf(since)) / 86400e3;
const PARTS = { year: (date, { first }) => date.getUTCFullYear() - dayOf(first).getUTCFullYear(), month: (date) => date.getUTCMonth(), weekday: (date) => (date.getUTCDay() + 6) % 7 };
const widthOfPart = (part, { first, last }) => (part === 'month' ? 12 : part === 'weekday' ? 7 : dayOf(last).getUTCFullYear() - dayOf(first).getUTCFullYear() + 1);

/** The groups of coordinates: type, place of the first one, how many, and bounds of what is a number. */
export function groupsOf(schema) {
  const groups = [];
  let start = 0;
  const add = (type, width, bounds) => { groups.push({ type, start, width, bounds }); start += width; };
  for (const feature of schema.features) {
    if (feature.type === 'category') add('category', feature.values.length);
    else if (feature.type === 'real') add('real', 1, [real(feature.lower), real(feature.upper)]);
    else if (feature.type === 'date') {
      add('day', 1, [feature.first, feature.last].map((each) => daysAfter(feature.since, dayOf(each))));
      feature.parts.forEach((part) => add('category', widthOfPart(part, feature)));
    } else add(feature.type, 1);
  }
  return groups;
}

export const dimension = (schema) => groupsOf(schema).reduce((sum, each) => sum + each.width, 0) + (schema.bias ? 1 : 0);

/** The coordinate of a real value, truncated toward zero to units of 2^-30. */
export const encodeReal = (v, [lower, upper]) => Math.trunc((((v - lower) / (upper - lower)) * 2 - 1) * ONE);

const TRIMMED = '[\\p{White_Space}\\u200b\\u2060\\ufeff]+';
const ENDS = new RegExp(`^${TRIMMED}|${TRIMMED}$`, 'gu');

// Full case folding of one character from the changes of case that JavaScript has.
function fold(character) {
  if (character === '\u0131') return character;
  if (/[\u13a0-\u13fd\uab70-\uabbf]/.test(character)) return character.toUpperCase();
  return character.toLowerCase().toUpperCase().toLowerCase().replaceAll('\u03c2', '\u03c3');
}

/** The form in which a text is compared. */
export function formOf(text, steps = []) {
  if ([...text].length > 256) return text;
  if (steps.includes('nfc')) text = text.normalize('NFC');
  if (steps.includes('trim')) text = text.replace(ENDS, '');
  if (steps.includes('case')) {
    text = [...text].map(fold).join('');
    if (steps.includes('nfc')) text = text.normalize('NFC');
  }
  return text;
}

const NUMBER = /^[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?$/;
const numberOf = (text) => (NUMBER.test(text) && Number.isFinite(Number(text)) ? Number(text) : null);
const unblanked = (text) => text.replace(ENDS, '');

// What a schema's policy does with a cell: a value in its place, or null for a row that is left out.
function policy(feature, name, impute) {
  const choice = feature[name] ?? (name === 'unreadable' ? (feature.missing === 'refuse' ? 'refuse' : 'zero-vector') : undefined);
  if (choice === 'zero-vector') return null;
  if (choice === 'impute') return impute();
  throw new Error(`column ${feature.column}: the schema refuses a cell that is ${name}`);
}

function reader(feature, form) {
  const places = (texts) => new Set(texts.map(form));
  if (feature.type === 'real') {
    const bounds = [real(feature.lower), real(feature.upper)];
    const impute = () => [encodeReal(real(feature.impute), bounds)];
    return (cell) => {
      const text = unblanked(cell);
      if (text === '') return policy(feature, 'missing', impute);
      const value = numberOf(text);
      if (value === null) return policy(feature, 'unreadable', impute);
      if (value >= bounds[0] && value <= bounds[1]) return [encodeReal(value, bounds)];
      if (feature.out_of_bounds === 'clip') return [value < bounds[0] ? -ONE : ONE];
      return policy(feature, 'out_of_bounds', impute);
    };
  }
  if (feature.type === 'threshold') {
    const bound = real(feature.threshold);
    const impute = () => [feature.impute ? ONE : -ONE];
    return (cell) => {
      const text = unblanked(cell);
      if (text === '') return policy(feature, 'missing', impute);
      const value = numberOf(text);
      return value === null ? policy(feature, 'unreadable', impute) : [value >= bound ? ONE : -ONE];
    };
  }
  if (feature.type === 'boolean') {
    const [yes, no] = [places(feature.true), places(feature.false ?? [])];
    const impute = () => [feature.impute ? ONE : -ONE];
    return (cell) => (form(cell) === '' ? policy(feature, 'missing', impute)
      : yes.has(form(cell)) ? [ONE] : no.has(form(cell)) ? [-ONE] : policy(feature, 'unknown', impute));
  }
  if (feature.type === 'category') {
    const values = feature.values.map(form);
    const indicators = (place) => values.map((_, i) => (i === place ? ONE : 0));
    const impute = () => indicators(values.indexOf(form(feature.impute)));
    return (cell) => {
      if (form(cell) === '') return policy(feature, 'missing', impute);
      const text = [...form(cell)].slice(0, feature.prefix).join('');
      const place = values.indexOf(text);
      if (place >= 0) return indicators(place);
      return feature.unknown === 'zero' ? indicators(-1) : policy(feature, 'unknown', impute);
    };
  }
  if (feature.type === 'date') {
    const [first, last] = [dayOf(feature.first), dayOf(feature.last)];
    const bounds = [first, last].map((each) => daysAfter(feature.since, each));
    const encode = (date) => [encodeReal(daysAfter(feature.since, date), bounds), ...feature.parts.flatMap((part) => {
      const place = PARTS[part](date, feature);
      return Array.from({ length: widthOfPart(part, feature) }, (_, i) => (i === place ? ONE : 0));
    })];
    const impute = () => encode(dayOf(feature.impute));
    return (cell) => {
      if (form(cell) === '') return policy(feature, 'missing', impute);
      const date = dayOf(form(cell));
      if (date === null) return policy(feature, 'unreadable', impute);
      if (date >= first && date <= last) return encode(date);
      return feature.out_of_bounds === 'clip' ? encode(date < first ? first : last) : policy(feature, 'out_of_bounds', impute);
    };
  }
  throw new Error(`this party has no features of type ${feature.type}`);
}

/** The cells of a CSV text, row by row. The first line says what separates them. */
export function cellsOf(text) {
  text = text.replace(/^\ufeff/, '');
  const separator = [',', ';', '\t', '|'].find((each) => text.split('\n', 1)[0].includes(each)) ?? ',';
  const rows = [];
  let [row, cell, quoted, begun] = [[], '', false, false];
  const endCell = () => { row.push(cell); cell = ''; begun = false; };
  const endRow = () => { endCell(); if (row.length > 1 || row[0] !== '') rows.push(row); row = []; };
  for (let i = 0; i < text.length; i++) {
    const c = text[i];
    if (quoted) {
      if (c !== '"') cell += c;
      else if (text[i + 1] === '"') { cell += '"'; i++; } else quoted = false;
    } else if (c === '"' && !begun) { quoted = true; begun = true; }
    else if (c === separator) endCell();
    else if (c === '\n') endRow();
    else if (c !== '\r') { cell += c; begun = true; }
  }
  if (cell !== '' || row.length) endRow();
  return rows;
}

/** All rows of a CSV file: a label of -1 or +1, coordinates, and whether the row is usable. */
export function readRows(file, schema) {
  return rowsOf(fs.readFileSync(file, 'utf8'), schema, file);
}

export function rowsOf(csv, schema, file = 'the table') {
  need(!schema.label.type && !schema.weight, 'SCHEMA_MISMATCH', 'this party has labels of two classes only, and no weights');
  const [header, ...rows] = cellsOf(csv);
  const strip = (text) => text.replace(/^[ \t\r\n]+|[ \t\r\n]+$/g, '');
  const form = (text) => formOf(strip(text), schema.texts ?? []);
  const columnOf = (name) => {
    const place = header.map(strip).indexOf(name);
    if (place < 0) throw new Error(`${file} has no column ${name}`);
    return place;
  };
  const label = { place: columnOf(schema.label.column), positive: new Set(schema.label.positive.map(form)), negative: schema.label.negative && new Set(schema.label.negative.map(form)) };
  const readers = schema.features.map((each) => [columnOf(each.column), reader(each, form)]);
  return rows.map((cells) => {
    if (cells.length !== header.length) throw new Error(`${file}: a row has ${cells.length} cells in place of ${header.length}`);
    const text = form(cells[label.place]);
    const y = text !== '' && label.positive.has(text) ? 1
      : text !== '' && (!label.negative || label.negative.has(text)) ? -1 : policy(schema.label, 'missing');
    const parts = readers.map(([place, read]) => read(strip(cells[place])));
    const usable = y !== null && parts.every((part) => part !== null);
    const width = dimension(schema);
    return usable ? { y, x: [...parts.flat(), ...(schema.bias ? [ONE] : [])], usable }
      : { y: 1, x: Array(width).fill(0), usable };
  });
}
