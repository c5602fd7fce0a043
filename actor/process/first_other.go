//go:build !linux

package process

// RunAsFirst returns false: only Linux has containers with a first process of their own.
func RunAsFirst() (code int, first bool) { return 0, false }
