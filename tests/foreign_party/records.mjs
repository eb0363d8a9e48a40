// A schema in canonical form, and a CSV file's rows as coordinates (docs/protocol.md, section 4). This party knows labels
// of two classes, and real, boolean, threshold and category features without a prefix.
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
export const widthOf = (feature) => (feature.type === 'category' ? feature.values.length : 1);
export const boundsOf = (feature) => [real(feature.lower), real(feature.upper)];
export const dimension = (schema) => schema.features.reduce((sum, each) => sum + widthOf(each), 0) + (schema.bias ? 1 : 0);

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
    const bounds = boundsOf(feature);
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
  if (feature.type === 'category' && feature.prefix === undefined) {
    const values = feature.values.map(form);
    const indicators = (place) => values.map((_, i) => (i === place ? ONE : 0));
    const impute = () => indicators(values.indexOf(form(feature.impute)));
    return (cell) => {
      if (form(cell) === '') return policy(feature, 'missing', impute);
      const place = values.indexOf(form(cell));
      if (place >= 0) return indicators(place);
      return feature.unknown === 'zero' ? indicators(-1) : policy(feature, 'unknown', impute);
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

/** All rows: a label of -1 or +1, coordinates, and whether the row is usable. */
export function readRows(file, schema) {
  need(!schema.label.type && !schema.weight, 'SCHEMA_MISMATCH', 'this party has labels of two classes only, and no weights');
  const [header, ...rows] = cellsOf(fs.readFileSync(file, 'utf8'));
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
