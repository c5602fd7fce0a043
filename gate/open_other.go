//go:build !unix

package gate

// nonblock is not needed where pipes are not files of a folder.
const nonblock = 0
