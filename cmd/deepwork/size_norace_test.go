//go:build !race

package main

// manyAttempts is how many attempts the tests of many at once make: those of the
// issue's figure.
const manyAttempts = 50
