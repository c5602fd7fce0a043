//go:build race

package transport

// slowness is how much longer things may take under the race detector.
const slowness = 15

// plenty is how many workflows a source has that has very many.
const plenty = 2500
