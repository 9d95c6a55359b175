// Module hooks: zod is the real one where it is installed beside the client,
// and zod.mjs in this folder otherwise.
export async function resolve(specifier, context, next) {
	try {
		return await next(specifier, context);
	} catch (err) {
		if (specifier !== 'zod') throw err;
		return { url: new URL('./zod.mjs', import.meta.url).href, shortCircuit: true };
	}
}
