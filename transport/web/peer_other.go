//go:build !linux

package web

import "net/netip"

func ownerOf(_, _ netip.AddrPort) (uint32, error) { return 0, errNoPeers }

// CanKnowPeers reports whether the owners of connections can be found out.
func CanKnowPeers() bool { return false }
