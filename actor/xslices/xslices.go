// Package xslices has a function that package slices lacks.
package xslices

// Map returns the results of of for each item of a list, in order; nil for an empty list.
func Map[T, U any](all []T, of func(T) U) (mapped []U) {
	for _, x := range all {
		mapped = append(mapped, of(x))
	}
	return mapped
}
