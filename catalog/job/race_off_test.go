//go:build !race

package job

// hostileBytes is how large hostile input is made: as large as it may be.
const hostileBytes = MaxBytes
