//go:build race

package job

// hostileBytes is smaller under the race detector, which makes the YAML parser
// many times slower; time is judged without it.
const hostileBytes = MaxBytes / 16
