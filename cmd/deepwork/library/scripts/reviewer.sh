#!/bin/sh
# A reviewer: it reads what to judge on stdin and prints its verdict as JSON. This one fails work in which something is
# left to do. It looks at everything after the first marker: a line that looks like the last one may be in a file.
# Put in its place whatever judges yours, such as a model.
if sed -n '/^==== BEGIN OUTPUTS/,$p' | grep -q 'TODO'; then
	echo '{"passed": false, "feedback": "A TODO is left. Do it, and hand in again."}'
else
	echo '{"passed": true, "feedback": ""}'
fi
