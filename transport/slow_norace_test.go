//go:build !race

package transport

const slowness = 1

// plenty is how many workflows a source has that has very many.
const plenty = 10_000
