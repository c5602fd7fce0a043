//go:build race

package transport

// plenty is how many workflows a source has that has very many.
const plenty = 2500

// replyTools: of so many tools one is asked for replies of megabytes.
const replyTools = 8
