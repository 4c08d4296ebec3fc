# fish completion of volferryctl
complete -c volferryctl -f -a '(volferryctl __complete -- (commandline -opc)[2..-1] (commandline -ct) 2>/dev/null)'
complete -c volferryctl -l to-path -r -F
complete -c volferryctl -l path -r -F
complete -c volferryctl -l socket -r -F
