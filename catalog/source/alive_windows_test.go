package source_test

// alive is not told here.
func alive(string) bool { return false }
