package trust

import "io/fs"

// faultOf finds nothing: who may write to a file is not looked at on Windows.
func faultOf(string, fs.FileInfo) string { return "" }
