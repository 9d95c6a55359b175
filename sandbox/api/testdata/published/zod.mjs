// The part of zod's interface that the published client's schemas use, with
// the same judgement of plain values, for machines where npm cannot install
// the real one. Types, required fields, enums, literals and unions are
// checked; refinements of strings and numbers are taken as met.

const fail = (path, message) => [{ code: 'custom', path, message }];

class Schema {
	constructor(check) {
		this.check = check; // (value, path) => { value } or { issues }
	}
	safeParse(value) {
		const r = this.check(value, []);
		return r.issues ? { success: false, error: { issues: r.issues, name: 'ZodError' } } : { success: true, data: r.value };
	}
	parse(value) {
		const r = this.safeParse(value);
		if (!r.success) throw Object.assign(new Error(JSON.stringify(r.error.issues)), r.error);
		return r.data;
	}
	or(...also) {
		return new Schema((v, path) => (also.includes(v) ? { value: v } : this.check(v, path)));
	}
	optional() {
		return this.or(undefined);
	}
	nullable() {
		return this.or(null);
	}
	nullish() {
		return this.or(undefined, null);
	}
	default(value) {
		return new Schema((v, path) => this.check(v === undefined ? value : v, path));
	}
}
for (const name of ['describe', 'refine', 'int', 'min', 'max', 'nonnegative', 'positive', 'regex', 'url', 'passthrough', 'loose', 'strict']) {
	Schema.prototype[name] = function () {
		return this;
	};
}

class ObjectSchema extends Schema {
	constructor(shape) {
		super((v, path) => {
			if (typeof v !== 'object' || v === null || Array.isArray(v)) return { issues: fail(path, 'not an object') };
			const value = {};
			const issues = [];
			for (const [key, schema] of Object.entries(shape)) {
				const r = schema.check(v[key], [...path, key]);
				if (r.issues) issues.push(...r.issues);
				else if (key in v) value[key] = r.value;
			}
			return issues.length ? { issues } : { value };
		});
		this.shape = shape;
	}
	extend(more) {
		return new ObjectSchema({ ...this.shape, ...more });
	}
	merge(other) {
		return this.extend(other.shape);
	}
	omit(keys) {
		return new ObjectSchema(Object.fromEntries(Object.entries(this.shape).filter(([k]) => !keys[k])));
	}
	partial() {
		return new ObjectSchema(Object.fromEntries(Object.entries(this.shape).map(([k, s]) => [k, s.optional()])));
	}
}

const typed = (name) => () => new Schema((v, path) => (typeof v === name ? { value: v } : { issues: fail(path, `not a ${name}`) }));
const anything = () => new Schema((value) => ({ value }));
const oneOf = (values) => new Schema((v, path) => (values.includes(v) ? { value: v } : { issues: fail(path, `not one of ${values}`) }));
const union = (options) =>
	new Schema((v, path) => {
		const issues = [];
		for (const o of options) {
			const r = o.check(v, path);
			if (!r.issues) return r;
			issues.push(...r.issues);
		}
		return { issues };
	});

export const z = {
	string: typed('string'),
	number: typed('number'),
	boolean: typed('boolean'),
	unknown: anything,
	any: anything,
	custom: anything,
	instanceof: anything,
	never: () => new Schema((v, path) => (v === undefined ? { value: v } : { issues: fail(path, 'not allowed') })),
	undefined: () => oneOf([undefined]),
	null: () => oneOf([null]),
	literal: (value) => oneOf([value]),
	enum: (values) => oneOf(Array.isArray(values) ? values : Object.values(values)),
	object: (shape) => new ObjectSchema(shape),
	array: (item) =>
		new Schema((v, path) => {
			if (!Array.isArray(v)) return { issues: fail(path, 'not an array') };
			const all = v.map((e, i) => item.check(e, [...path, i]));
			const issues = all.flatMap((r) => r.issues ?? []);
			return issues.length ? { issues } : { value: all.map((r) => r.value) };
		}),
	record: (_key, item) =>
		new Schema((v, path) => {
			if (typeof v !== 'object' || v === null || Array.isArray(v)) return { issues: fail(path, 'not a record') };
			const issues = Object.entries(v).flatMap(([k, e]) => item.check(e, [...path, k]).issues ?? []);
			return issues.length ? { issues } : { value: v };
		}),
	union,
	discriminatedUnion: (_key, options) => union(options),
	intersection: (a) => a,
	lazy: (make) => new Schema((v, path) => make().check(v, path)),
	toJSONSchema: () => ({}),
	ZodIssueCode: { custom: 'custom' },
};
export default z;
