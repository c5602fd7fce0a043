//go:build race

package gate

// hostileSize is how large a hostile answer is, in bytes. The race detector makes
// reading one ten times as slow, and one goroutine does all of it.
const hostileSize = stdoutLimit / 8
