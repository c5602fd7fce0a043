//go:build !race

package gate

// hostileSize is how large a hostile answer is, in bytes.
const hostileSize = stdoutLimit
