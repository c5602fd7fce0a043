package transport

import (
	"slices"
	"testing"

	"deepwork/catalog/config"
)

// A reviewer does not get the URL of the store.
func TestTheStoreIsWithheldFromReviewers(t *testing.T) {
	if s := new(reviewing).merge(config.Default()); !slices.Contains(s.Secrets, config.StoreEnv) {
		t.Errorf("withheld are %v", s.Secrets)
	}
}
