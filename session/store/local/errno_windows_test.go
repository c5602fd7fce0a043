package local

import "golang.org/x/sys/windows"

var noSpace error = windows.ERROR_DISK_FULL
