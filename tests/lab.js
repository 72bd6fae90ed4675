// What tests/lab.py asks in the browser. `jupyterapp` is JupyterLab, `watched` the notebook that is tested.
window.lab = (() => {
  const clock = () => performance.now()
  const isControl = '.noUi-handle, .widget-dropdown select, .widget-select select, .widget-checkbox input, ' +
    '.widget-toggle-button, .widget-toggle-buttons button, .widget-radio-box input, .widget-button, ' +
    'input[type=number], .jp-OutputArea input[type=range]'
  const isText = '.widget-text input[type=text], .widget-textarea textarea'
  const isPicture = '.jp-OutputArea-output, .widget-html, .widget-image'
  let watched = null, statuses = [], busy = 0, idle = 0, move = null

  const shown = () => jupyterapp.shell.currentWidget
  const kernel = () => watched.sessionContext.session?.kernel?.status
  const cells = () => watched.content.widgets
  const code = () => cells().filter(c => c.model.type === 'code' && c.model.sharedModel.source.trim())
  const at = node => cells().findIndex(c => c.node.contains(node))
  const all = (selector, root = watched.node) => [...root.querySelectorAll(selector)]
  const name = node => node.dataset?.jupyterId ?? node.id
  const visible = node => node.getClientRects().length > 0
  const scroller = () => watched.content.node.querySelector('.jp-WindowedPanel-outer') ?? watched.content.node
  // an output that shows something, not one that holds sliders
  const shows = node => !node.querySelector('.jupyter-widgets') || node.matches('.widget-html, .widget-image')
  const picture = node => {
    const near = node.nodeType === 1 ? node : node.parentElement
    const own = near?.closest(isPicture)
    return own && shows(own) ? own : near?.matches('.jp-OutputArea') ? near : null
  }
  const look = root => all(isPicture, root).filter(shows)
    .map(o => o.innerText + all('img', o).map(i => i.src).join() + all('svg', o).map(s => s.innerHTML).join())
    .join('\n')

  function opened(path) {
    const panel = shown()
    return panel?.context?.path === path && panel.context.isReady
  }
  function take(path) {
    const panel = shown()
    if (!opened(path) || !panel.content.widgets) return false
    if (panel.sessionContext.session?.kernel?.status !== 'idle') return false
    watched = panel
    watched.sessionContext.statusChanged.connect((_, status) => {
      statuses.push(status)
      if (status === 'busy') busy = clock()
      if (status === 'idle') idle = clock()
    })
    return true
  }

  const died = () => statuses.some(s => ['dead', 'autorestarting', 'restarting'].includes(s))
  const running = c => c.model.executionState === 'running'
  const started = i => died() || running(cells()[i]) || cells()[i].model.executionCount !== null
  const done = () => died() || (kernel() === 'idle' && !code().some(running))
  const unrun = () => code().filter(c => c.model.executionCount === null).map(c => cells().indexOf(c))
  const source = i => cells()[i].model.sharedModel.source
  const first = i => i < 0 ? '' :
    source(i).replace(/^#\|.*$|<[^>]+>/mg, '').trim().split('\n')[0].slice(0, 60)

  function rendered() {
    const pending = cells().some(c => c.model.type === 'markdown' && !c.rendered)
    return !pending && !plain().length && all('.jp-OutputArea img').every(i => i.complete)
  }
  function plain() { // maths that is still text
    const found = []
    for (const node of all('.jp-RenderedHTMLCommon')) {
      const walk = document.createTreeWalker(node, NodeFilter.SHOW_TEXT)
      while (walk.nextNode()) {
        const text = walk.currentNode.data
        const inside = walk.currentNode.parentElement.closest('code, pre, mjx-container, script, style')
        if (!inside && /\$[^$]+\$|\\[([]|\\begin\{|\\frac|\\sum/.test(text)) found.push([node, text])
      }
    }
    return found
  }
  function colours(source, width, height) { // 1 where all pixels are the same
    const [w, h] = [Math.min(width, 2000), Math.min(height, 2000)]
    const context = Object.assign(document.createElement('canvas'), {width: w, height: h}).getContext('2d')
    context.drawImage(source, 0, 0, w, h)
    const pixels = new Uint32Array(context.getImageData(0, 0, w, h).data.buffer)
    return pixels.every(p => p === pixels[0]) ? 1 : 2
  }
  function wrongWith(node) {
    const box = node.getBoundingClientRect()
    if (node.tagName === 'VIDEO') return node.error ? `a video does not play: ${node.error.message}` : null
    if (node.tagName === 'IMG' && !(node.complete && node.naturalWidth))
      return `a picture does not load: ${decodeURI(node.src).slice(0, 80)}`
    if (node.tagName === 'CANVAS' && !(node.width && node.height)) return 'an empty picture'
    if (!(box.width >= 1 && box.height >= 1)) return 'a picture of no size'
    if (node.tagName === 'svg') return null
    const foreign = node.src && !node.src.startsWith('data:') && new URL(node.src).origin !== location.origin
    if (foreign) return null // pixels of other sites may not be read
    const blank = colours(node, node.naturalWidth ?? node.width, node.naturalHeight ?? node.height) === 1
    return blank ? 'a blank picture: one colour' : null
  }

  const tex = node => // glyphs are drawn by the style sheet; what they say stands beside them
    all('mjx-assistive-mml mtext', node.closest('mjx-container')).map(m => m.textContent).join(' ')
  // also where widgets write what their function raised
  const stderr = '[data-mime-type="application/vnd.jupyter.stderr"]'
  const failures = root => all(`[data-mime-type="application/vnd.jupyter.error"], ${stderr}`, root)
    .filter(node => !node.matches(stderr) || /Traceback \(most recent|IOPub \w+ rate/.test(node.innerText))
    .map(node => [node, `error: ${node.innerText.trim().split('\n').pop().slice(0, 200)}`])

  function problems() {
    const found = [], notes = []
    const say = (node, text) => found.push([at(node), text])
    for (const [node, text] of failures(watched.node)) say(node, text)
    for (const node of all(stderr)) {
      const text = node.innerText.trim().split('\n')[0]
      if (text && !failures(node.parentElement).length && !/it\/s|s\/it|\d+%\|/.test(text))
        notes.push([at(node), `stderr: ${text.slice(0, 160)}`])
    }
    for (const c of code()) if (!died() && c.model.executionCount === null) say(c.node, 'did not run')
    const pictures = '.jp-OutputArea img, .jp-OutputArea canvas, .jp-OutputArea svg, .jp-OutputArea video, ' +
      '.jp-RenderedMarkdown img'
    for (const node of all(pictures)) {
      if (node.closest('mjx-container, button') || node.parentElement.closest('svg')) continue
      const wrong = wrongWith(node)
      if (wrong) say(node, wrong)
    }
    for (const [node, text] of plain()) say(node, `maths is not rendered: ${text.trim().slice(0, 80)}`)
    for (const node of all('mjx-container [data-mjx-error], mjx-container mjx-merror'))
      say(node, `maths: ${node.getAttribute('data-mjx-error') ?? node.textContent}`)
    for (const node of all('mjx-container mjx-mtext'))
      if (getComputedStyle(node).color === 'rgb(255, 0, 0)') say(node, `maths: unknown ${tex(node)}`)
    for (const node of all('.jp-RenderedMarkdown pre')) {
      const lines = node.textContent.trimEnd().split('\n').length
      const tall = parseFloat(getComputedStyle(node).lineHeight)
      const rows = Math.round(node.getBoundingClientRect().height/tall)
      if (rows > lines) notes.push([at(node), `text too wide, its ${lines} lines take ${rows}`])
    }
    return {found: [...found, ...wide()], notes}
  }
  function wide() { // cells with text, a formula, a table or code that its panel cuts
    const boxes = [scroller(), ...all('.jp-OutputArea-output, .jp-RenderedMarkdown, .jupyter-widgets, .cm-scroller')]
    const cut = boxes.filter(n => visible(n) && n.clientWidth && n.scrollWidth > n.clientWidth + 1 &&
      !n.matches('.noUi-target, .widget-inline-hbox, .jp-OutputArea-output:has(.jupyter-widgets)'))
    return cut.filter(n => !cut.some(other => other !== n && n.contains(other)))
      .map(n => [at(n), `wider than its panel: ${n.scrollWidth} of ${n.clientWidth} px`])
  }

  function links() {
    const written = all('.jp-RenderedHTMLCommon a:not(.jp-InternalAnchorLink)').filter(a => !a.closest('svg'))
    return written.filter(a => a.hasAttribute('href') || !name(a)).map((a, n) => {
      a.dataset.labLink = n
      const href = a.getAttribute('href') ?? ''
      const url = new URL(href, location.href)
      const files = '/files/'
      const local = !href || href.startsWith('#') || url.origin === location.origin
      const path = href.startsWith('#') ? watched.context.path :
        url.pathname.startsWith(files) ? decodeURIComponent(url.pathname.slice(files.length)) : null
      const anchor = decodeURIComponent(url.hash.slice(1))
      return {n, cell: at(a), local, path, anchor, text: a.textContent.trim()}
    })
  }
  const places = anchor =>
    all('[id], [data-jupyter-id]', shown().content.node).filter(n => name(n) === anchor)
  const cellOf = anchor => shown().content.widgets?.find(c => `cell-id=${c.model.id}` === anchor)?.node
  const targets = anchor => [...places(anchor), cellOf(anchor)].filter(Boolean)
  // JupyterLab lays out a long page little by little
  const drawn = cell => cell.rendered && cell.node.querySelector('.jp-MarkdownOutput')?.childElementCount
  const laidOut = () => (shown().content.widgets ?? [])
    .every(c => c.node.isConnected && (c.model.type !== 'markdown' || drawn(c)))
  const present = anchor => !anchor || targets(anchor).length > 0
  function arrived(anchor) { // does the reader see it?
    const panel = shown().content.node.getBoundingClientRect()
    return !anchor || targets(anchor).some(n => {
      const box = n.getBoundingClientRect()
      return box.bottom > panel.top - 4 && box.top < panel.bottom
    })
  }
  const show = () => jupyterapp.shell.activateById(watched.id)

  function controls() {
    const label = node => {
      if (node.matches('[type=range]')) return node.closest('label')?.firstChild.textContent.trim() ?? ''
      const own = node.closest('.jupyter-widgets:not(button)')
      const all = own?.querySelectorAll('.widget-label, .widget-label-basic')
      return [...all ?? []].map(n => n.textContent.replace(/\u200b/g, '').trim()).find(text => text) ?? ''
    }
    const kinds = {'.noUi-handle, [type=range]': 'slider', 'select': 'choice', 'input[type=number]': 'number'}
    const kind = node => Object.entries(kinds).find(([s]) => node.matches(s))?.[1] ?? 'click'
    const found = all(isControl).filter(n => visible(n) && !n.disabled && n.closest('.jupyter-widgets, label'))
    const text = all(isText).filter(visible).map(n => [at(n), `not tried: the text field ${label(n)}`])
    return {text, found: found.map((node, n) => {
      node.dataset.labControl = n
      return {n, kind: kind(node), cell: at(node), label: (label(node) || node.textContent).trim(),
        options: node.options?.length ?? 0}
    })}
  }
  const control = n => watched.node.querySelector(`[data-lab-control="${n}"]`)
  function value(n) {
    const node = control(n)
    if (!node) return null
    if (node.matches('.noUi-handle')) return node.ariaValueText
    if (node.matches('select')) return [...node.selectedOptions].map(o => o.index).join()
    if (node.matches('button')) return node.className
    return node.matches('[type=number], [type=range]') ? node.value : String(node.checked)
  }
  const ends = n => {
    const names = control(n).matches('[type=range]') ? ['min', 'value', 'max'] :
      ['ariaValueMin', 'ariaValueNow', 'ariaValueMax']
    return names.map(a => Number(control(n)[a]))
  }
  const readout = n =>
    control(n).closest('.jupyter-widgets')?.querySelector('.widget-readout')?.textContent ?? null

  function watch(n) {
    move?.observer.disconnect()
    const group = control(n).closest('.widget-interact')
    const root = group?.querySelector('.widget-output') ? group : cells()[at(control(n))].node
    const mine = {start: 0, redrawn: 0, before: look(root), root, n, value: value(n)}
    const events = ['keydown', 'pointerdown', 'input', 'change']
    const begin = () => { mine.start ||= clock() }
    mine.end = () => events.forEach(e => document.removeEventListener(e, begin, true))
    events.forEach(e => document.addEventListener(e, begin, true))
    mine.observer = new MutationObserver(records => {
      const changed = records.filter(r => picture(r.target))
      if (!changed.length || !mine.start) return
      mine.redrawn = clock()
      const added = changed.flatMap(r => [...r.addedNodes]).filter(a => a.querySelectorAll)
      for (const image of added.flatMap(a => all('img', a)))
        image.decode().catch(() => null).then(() => { mine.redrawn = clock() })
    })
    const what = {childList: true, subtree: true, characterData: true, attributeFilter: ['src']}
    mine.observer.observe(root, what)
    move = mine
  }
  function settled() {
    const now = clock(), {start, redrawn, root, n} = move
    if (died()) return true
    if (control(n).matches('[type=range]')) return start && now - Math.max(start, redrawn) > 300 // no kernel
    if (!start || busy < start) return start && now - start > 2000 // nothing has reached the kernel
    const quiet = kernel() === 'idle' && now - Math.max(busy, idle, redrawn) > 120
    return quiet && all('img', root).every(i => i.complete)
  }
  function moved() {
    move.observer.disconnect()
    move.end()
    return {seconds: (move.redrawn - move.start)/1000, redrawn: move.redrawn > 0,
      errors: failures(move.root).map(f => f[1]), same: look(move.root) === move.before,
      changed: value(move.n) !== move.value}
  }

  const view = () => {
    const box = scroller().getBoundingClientRect()
    return {x: box.x, y: box.y, width: scroller().clientWidth, height: scroller().clientHeight,
      top: scroller().scrollTop, total: scroller().scrollHeight}
  }
  const scroll = y => new Promise(ok => {
    scroller().scrollTop = y
    requestAnimationFrame(() => requestAnimationFrame(() => ok(view())))
  })
  const dialogs = () => [...document.querySelectorAll('.jp-Dialog-content')].map(d => d.innerText.trim())
  const select = i => { watched.content.activeCellIndex = i }
  const size = () => code().length

  return {opened, take, started, done, died, unrun, first, rendered, problems, wide, links, laidOut, present,
    arrived, show, controls, value, ends, readout, watch, settled, moved, view, scroll, dialogs, select, size}
})()
