//go:build race

package transport

// replyTools: of so many tools one is asked for replies of megabytes.
const replyTools = 8
