//go:build !race

package main

// manyAttempts is how many agents the tests of many at once start: as many as the figure promises.
const manyAttempts = 50
