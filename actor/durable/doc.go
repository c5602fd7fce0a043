// Package durable writes state to disk so that it survives a crash of the program and a loss of
// power: atomic replacement of files, synced folders and file locks, on Linux, other Unixes and
// Windows.
//
// google/renameio lacks Windows and the sync of the folder, natefinch/atomic lacks syncs, and
// neither has an exclusive rename or a way to make a disk fail in tests.
//
// The content is synced, then the file gets its name, then the folder is synced. Only when all
// three have succeeded is the state durable.
package durable
