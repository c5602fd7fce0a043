// Package interop holds what is tested with software of others: source.mjs is a
// source of workflows that is written with the official TypeScript SDK. The test
// has the build tag interop and needs node and npm; .ci/run runs it.
package interop
