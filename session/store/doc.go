// Package store holds the interfaces of the stores: what a package under session
// needs of the place where its state is kept. Implementations are below this folder.
package store
