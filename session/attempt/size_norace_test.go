//go:build !race

package attempt

// manyAttempts is how many attempts the tests of many at once make: those of the
// issue's figure.
const manyAttempts = 50
