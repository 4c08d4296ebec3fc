# bash completion of volferryctl
_volferryctl() {
	local current=${COMP_WORDS[COMP_CWORD]} word quoted
	COMPREPLY=()
	while IFS= read -r word; do
		# Bash takes what it is given into the command line as it is.
		printf -v quoted %q "$word"
		# Within quotes that somebody has opened, other quoting would mean something else.
		if [[ $quoted == "$word" || $current != *[\"\'\`]* ]]; then
			COMPREPLY+=("$quoted")
		fi
	done < <(volferryctl __complete -- "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
}
complete -o default -F _volferryctl volferryctl
