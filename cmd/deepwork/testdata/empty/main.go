// Empty does nothing: the start of the shim is compared with its.
package main

func main() {}
