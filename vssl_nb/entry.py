"What is started when `vssl-nb` is typed, and how it ends when one thinks better of it at once."

import os
import signal
import sys
from contextlib import suppress
from typing import Any

def end_at_once(number:int, frame:Any=None)->None:
    "Answer a signal while there is nothing to put away: one sentence, and exit code 128 + `number`."
    with suppress(OSError): os.write(2, b'vssl-nb: interrupted\n') # who called may have closed it
    os._exit(128 + number)

def take_signals()->dict[int,Any]: # the signals that are ours now, and how they are answered usually
    "From now on SIGINT and SIGTERM, unless somebody has made other arrangements, end this process at once."
    usual: Any = ((signal.SIGINT, signal.default_int_handler), (signal.SIGTERM, signal.SIG_DFL))
    return {number: signal.signal(number, end_at_once) for number,how in usual
        if signal.getsignal(number) is how}

def run()->None:
    "What `vssl-nb` starts: the command line, and an end without a traceback from the first import on."
    take_signals()
    try:
        from .cli import main, skip_last_collection
        code = main(first_answer=end_at_once) # takes over from it, and hands back to it
    except KeyboardInterrupt: end_at_once(signal.SIGINT) # between two arrangements
    skip_last_collection()
    sys.exit(code)

if __name__ == '__main__' and '__file__' in globals(): run()
