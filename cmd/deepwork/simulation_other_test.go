//go:build !unix

package main

func simulatedServer() {}

func simulatedSource() {}
