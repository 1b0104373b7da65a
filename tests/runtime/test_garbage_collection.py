"""Pauses of Python's garbage collector."""

import gc
import threading

from batchnav.runtime import garbage_collection as collector


def test_collector_is_paused_until_the_last_resume():
    """A thread that compiles ends while another records a graph, in which nothing may be collected."""
    compiling, recording = threading.Event(), threading.Event()

    def compile_meanwhile():
        with collector.collection_paused():
            compiling.set()
            assert recording.wait(300)

    thread = threading.Thread(target=compile_meanwhile)
    thread.start()
    assert compiling.wait(300)
    with collector.collection_paused():
        recording.set()
        thread.join()
        assert not gc.isenabled()
    assert gc.isenabled()


def test_a_disabled_collector_stays_disabled():
    gc.disable()
    try:
        with collector.collection_paused():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()
