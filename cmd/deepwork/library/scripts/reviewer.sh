#!/bin/sh
# A reviewer: it reads what to judge on stdin and prints its verdict as JSON. This one fails work in which something is
# left to do. Put in its place whatever judges yours: `deepwork help reviewer` has one that asks a model.
outputs=$(sed -n '/^==== BEGIN OUTPUTS/,/^==== END OUTPUTS/p')
if printf '%s\n' "$outputs" | grep -q 'TODO'; then
	echo '{"passed": false, "feedback": "A TODO is left. Do it, or say why it stays."}'
else
	echo '{"passed": true, "feedback": ""}'
fi
