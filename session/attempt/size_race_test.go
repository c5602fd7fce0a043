//go:build race

package attempt

// manyAttempts is how many attempts the tests of many at once make. Most of what
// one takes is git and its agent, where the race detector sees nothing.
const manyAttempts = 16
